//! A command that waits while no kernel of the process runs, and a launch behind it. The rules are those of `waiting_commands.rs` of the hook.

use super::stream::Stream;
use super::{MS, S, US};

/// How long a launch waits for a command at most.
const LONGEST_WAIT_NS: u64 = 100 * MS;

/// For how long launches of a process wait for no command after one took longer.
pub(super) const PAUSE_NS: u64 = 10 * S;

/// How often the launching thread queries whether the command has ended.
const QUERY_INTERVAL_NS: u64 = 50 * US;

/// The launch that the thread is about to submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Launch {
    #[default]
    NotBegun,
    /// It waits for the command until this time: the end of the wait, or the first query after the end of the command.
    WaitsForCommand { since: u64, until: u64 },
    /// It does not wait for a command, and needs a grant.
    NeedsGrant,
}

/// What the process knows of its command ahead and its launch. Both outlast a grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitingCommands {
    /// All work of the stream is a command that waits, and commands behind it that need no grant. No kernel was submitted since.
    is_ahead: bool,
    /// Until when no command is noted: a launch has waited for [`LONGEST_WAIT_NS`].
    paused_until: u64,
    launch: Launch,
    /// Launches that have waited for a command, and those of them for which the command did not end in time.
    pub(super) waits: u64,
    pub(super) timeouts: u64,
}

impl WaitingCommands {
    /// A command that waits is about to be submitted. The hook acts on it, and no kernel of the process runs.
    pub(super) fn begin_command(&mut self, now: u64, stream: &Stream) {
        self.is_ahead |= now >= self.paused_until && stream.is_empty();
    }

    /// Whether no kernel is in the stream, so that a drain has nothing to wait for.
    pub(super) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Whether the present launch waits for a command. Meanwhile it requests no grant.
    pub(super) fn holds_launch_back(&self) -> bool {
        matches!(self.launch, Launch::WaitsForCommand { .. })
    }

    /// The thread is about to launch, or waits to. `may_wait`: the hook acts on commands that wait, and no kernel of the process runs. The
    /// hook then checks whether the launch is the first one behind a command. Nothing changes this while the launch waits: the process has one
    /// thread. Returns whether the launch waits for a command.
    pub(super) fn waits_for_command(&mut self, now: u64, may_wait: bool, stream: &Stream) -> bool {
        if self.launch == Launch::NotBegun {
            self.launch = Launch::NeedsGrant;
            if may_wait && self.is_ahead && !stream.is_empty() {
                self.launch = Launch::WaitsForCommand { since: now, until: now + LONGEST_WAIT_NS };
                self.waits += 1;
            }
        }
        let Launch::WaitsForCommand { since, until } = self.launch else { return false };
        if stream.is_empty() {
            let queried = since + (now - since).next_multiple_of(QUERY_INTERVAL_NS);
            self.launch = Launch::WaitsForCommand { since, until: until.min(queried) };
        } else if now >= until {
            self.is_ahead = false;
            self.paused_until = now + PAUSE_NS;
            self.timeouts += 1;
        }
        if self.next_event().is_some_and(|at| at <= now) {
            self.launch = Launch::NeedsGrant;
        }
        self.holds_launch_back()
    }

    /// A kernel is submitted.
    pub(super) fn launched(&mut self) {
        self.launch = Launch::NotBegun;
        self.is_ahead = false;
    }

    /// When the launch goes on, if nothing but time changes.
    pub(super) fn next_event(&self) -> Option<u64> {
        match self.launch {
            Launch::WaitsForCommand { until, .. } => Some(until),
            Launch::NotBegun | Launch::NeedsGrant => None,
        }
    }
}
