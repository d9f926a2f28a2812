//! A command that waits while no kernel of the process runs, and a launch behind it. The rules are those of `waiting_commands.rs` of the hook.

use super::stream::Stream;
use super::{MS, US};

/// How long a launch waits for a command at most.
const LONGEST_WAIT_NS: u64 = 100 * MS;

/// How often the launching thread queries whether the command has ended.
const QUERY_INTERVAL_NS: u64 = 50 * US;

/// What the process knows of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CommandAhead {
    #[default]
    None,
    /// All work of the stream is a command that waits, and commands behind it that need no grant.
    Known,
    /// A launch has waited for [`LONGEST_WAIT_NS`]: launches of this process wait for no command any more.
    Never,
}

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
    ahead: CommandAhead,
    launch: Launch,
    /// Launches that have waited for a command, and those of them for which the command did not end in time.
    pub(super) waits: u64,
    pub(super) timeouts: u64,
}

impl WaitingCommands {
    /// A command that waits is about to be submitted, while another client wants the GPU and no kernel of the process runs.
    pub(super) fn begin_command(&mut self, stream: &Stream) {
        if self.ahead != CommandAhead::Never && stream.is_empty() {
            self.ahead = CommandAhead::Known;
        }
    }

    /// Whether no kernel is in the stream, so that a drain has nothing to wait for.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead == CommandAhead::Known
    }

    /// Whether the present launch waits for a command. Meanwhile it requests no grant.
    pub(super) fn holds_launch_back(&self) -> bool {
        matches!(self.launch, Launch::WaitsForCommand { .. })
    }

    /// The thread is about to launch, or waits to. `may_wait`: another client wants the GPU, and no kernel of the process runs. The hook
    /// checks this once for each launch. Returns whether the launch waits for a command.
    pub(super) fn waits_for_command(&mut self, now: u64, may_wait: bool, stream: &Stream) -> bool {
        if self.launch == Launch::NotBegun {
            self.launch = Launch::NeedsGrant;
            if may_wait && self.is_ahead() && !stream.is_empty() {
                self.launch = Launch::WaitsForCommand { since: now, until: now + LONGEST_WAIT_NS };
                self.waits += 1;
            }
        }
        let Launch::WaitsForCommand { since, until } = self.launch else { return false };
        if stream.is_empty() {
            let queried = since + (now - since).next_multiple_of(QUERY_INTERVAL_NS);
            self.launch = Launch::WaitsForCommand { since, until: until.min(queried) };
        } else if now >= until {
            self.ahead = CommandAhead::Never;
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
        if self.is_ahead() {
            self.ahead = CommandAhead::None;
        }
    }

    /// When the launch goes on, if nothing but time changes.
    pub(super) fn next_event(&self) -> Option<u64> {
        match self.launch {
            Launch::WaitsForCommand { until, .. } => Some(until),
            Launch::NotBegun | Launch::NeedsGrant => None,
        }
    }
}
