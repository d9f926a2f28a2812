//! The hook of a process: when it requests a grant, lets launches pass, and returns the grant.
//!
//! The rules are those of `crates/hook-core/src/device/`: `acquire.rs`, `tracker.rs`, `drain.rs` and `waiting_commands.rs`.
//!
//! The tracker does not poll while a poll would find nothing. The next poll is then as late as it may be: a whole interval later.

use super::stream::Stream;
use super::waiting_commands::WaitingCommands;
use super::{Fault, MS, US};

/// How long a process must be idle before it returns its grant, and how often the tracker polls: while other clients want the GPU.
pub(super) const IDLE_NS: u64 = 500 * US;
/// How often the tracker polls while no other client wants the GPU.
pub(super) const UNCONTENDED_POLL_NS: u64 = 2 * MS;
/// How long a process must be idle then.
const UNCONTENDED_IDLE_NS: u64 = 20 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Requested,
    Open,
    /// The grant is over once this many commands of the stream have ended.
    Draining(u64),
}

/// What the grant page of a process shows beside the deadline. The manager writes both with each grant, and `contended` whenever it changes
/// while the client holds a grant. The page keeps both after the end of the grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    /// Another client wants the GPU.
    pub(super) contended: bool,
    /// The client has a limit below the whole GPU.
    pub(super) limited: bool,
}

/// What a process reports when it returns its grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) used_ns: u64,
    pub(super) overuse_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Tracker {
    pub(super) phase: Phase,
    /// `u64::MAX`: the grant does not end.
    pub(super) deadline: u64,
    pub(super) page: Page,
    /// Since when kernels of the grant are not known to have ended.
    burst_since: Option<u64>,
    idle_since: u64,
    bursts: u64,
    used_ns: u64,
    /// An event was recorded behind the last kernel.
    end_is_recorded: bool,
    has_launched_since_poll: bool,
    polls_at: Option<u64>,
    pub(super) commands: WaitingCommands,
    fault: Fault,
}

impl Tracker {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            phase: Phase::Closed,
            deadline: 0,
            page: Page::default(),
            burst_since: None,
            idle_since: 0,
            bursts: 0,
            used_ns: 0,
            end_is_recorded: false,
            has_launched_since_poll: false,
            polls_at: None,
            commands: WaitingCommands::default(),
            fault,
        }
    }

    /// A grant begins.
    pub(super) fn open(&mut self, deadline: u64, now: u64, page: Page) {
        *self = Self {
            phase: Phase::Open,
            deadline,
            page,
            idle_since: now,
            polls_at: Some(now + poll_interval(page.contended)),
            commands: self.commands,
            ..Self::new(self.fault)
        };
    }

    /// Whether the kernel that the thread is about to launch may be submitted now.
    pub(super) fn may_launch(&mut self, now: u64, stream: &Stream) -> bool {
        let may_wait =
            self.returns_early() && !self.keeps_grant() && self.fault != Fault::LaunchesWaitForNoCommand;
        let waits = self.commands.waits_for_command(now, may_wait, stream);
        !waits && self.phase == Phase::Open && now < self.deadline
    }

    /// Whether the hook acts on commands that wait. The page of a process that has had no grant shows neither flag.
    fn returns_early(&self) -> bool {
        self.deadline != u64::MAX && (self.page.contended || self.page.limited)
    }

    /// Whether kernels run, and the grant is not about to be returned.
    fn keeps_grant(&self) -> bool {
        self.burst_since.is_some() && !matches!(self.phase, Phase::Draining(_))
    }

    /// A kernel is submitted.
    pub(super) fn launched(&mut self, now: u64) {
        self.bursts += u64::from(self.burst_since.is_none());
        self.burst_since.get_or_insert(now);
        self.has_launched_since_poll = true;
        self.end_is_recorded = false;
        self.commands.launched();
    }

    /// A command that waits is about to be submitted. Returns whether the hook returns a grant although the command has not ended.
    ///
    /// It does so if it has recorded an event behind the last kernel, or if it knows that no kernel is in the stream. It records an event
    /// only behind a kernel that is not known to have ended. It knows of no kernel if none ran and the stream was empty. It does both only if
    /// [`Self::returns_early`]. Otherwise the drain waits for the command.
    pub(super) fn begin_waiting_command(&mut self, now: u64, stream: &Stream) -> bool {
        let (returns_early, runs) = (self.returns_early(), self.burst_since.is_some());
        if returns_early && !self.keeps_grant() {
            self.commands.begin_command(now, stream);
        }
        if self.phase != Phase::Open {
            return true;
        }
        let has_event = self.end_is_recorded || runs && returns_early;
        self.end_is_recorded = has_event && self.fault != Fault::NoEventRecorded;
        has_event || self.commands.is_ahead()
    }

    /// The thread has waited for the stream.
    pub(super) fn synchronized(&mut self, now: u64) {
        if self.phase == Phase::Open {
            self.end_burst(now);
        }
    }

    /// When it acts next, if nothing but time changes.
    pub(super) fn next_event(&self) -> Option<u64> {
        let is_limited = self.phase == Phase::Open && self.deadline != u64::MAX;
        is_limited.then(|| self.polls_at.unwrap_or(u64::MAX).min(self.deadline))
    }

    /// Takes all steps that are due at `now`. Returns whether there was one, and the report if it returns the grant.
    pub(super) fn step(&mut self, now: u64, stream: &Stream) -> (bool, Option<Report>) {
        let mut changed = false;
        if self.phase == Phase::Open && self.deadline != u64::MAX {
            // The end of a burst can be found from now on.
            let is_over = self.burst_since.is_none() || self.is_burst_over(stream);
            if is_over && self.polls_at.is_none() {
                self.polls_at = Some(now + poll_interval(self.page.contended));
            }
            let returns = self.polls_at.is_some_and(|at| at <= now) && self.poll(now, stream);
            if now >= self.deadline || returns {
                self.begin_drain(stream);
                changed = true;
            }
        }
        match self.phase {
            Phase::Draining(commands) if stream.ended() >= commands => (true, Some(self.settle(now))),
            _ => (changed, None),
        }
    }

    fn is_burst_over(&self, stream: &Stream) -> bool {
        stream.is_empty() || self.end_is_recorded && !stream.has_kernel()
    }

    /// Returns whether the process returns its grant because it is idle.
    fn poll(&mut self, now: u64, stream: &Stream) -> bool {
        let quiet = !std::mem::take(&mut self.has_launched_since_poll);
        let contended = self.page.contended;
        let is_over = self.is_burst_over(stream);
        if quiet && is_over {
            self.end_burst(now);
        }
        self.polls_at = (is_over || self.burst_since.is_none()).then(|| now + poll_interval(contended));
        let idle_ns = if contended { IDLE_NS } else { UNCONTENDED_IDLE_NS };
        let is_idle = self.burst_since.is_none() && now - self.idle_since >= idle_ns;
        is_idle && self.fault != Fault::NoEarlyReturn
    }

    /// The grant is taken back, or is about to be returned: launches wait from here on.
    pub(super) fn begin_drain(&mut self, stream: &Stream) {
        let is_ahead = self.commands.is_ahead() && self.fault != Fault::DrainWaitsForCommands;
        let end =
            if self.end_is_recorded || is_ahead { stream.submitted_to_kernel } else { stream.submitted };
        self.phase = Phase::Draining(end);
    }

    fn end_burst(&mut self, now: u64) {
        if let Some(since) = self.burst_since.take() {
            self.used_ns += now - since;
            self.idle_since = now;
        }
    }

    /// The work of the grant has ended.
    fn settle(&mut self, now: u64) -> Report {
        self.end_burst(now);
        self.phase = Phase::Closed;
        let overuse_ns = if self.bursts > 0 { self.idle_since.saturating_sub(self.deadline) } else { 0 };
        Report { used_ns: self.used_ns, overuse_ns }
    }
}

fn poll_interval(contended: bool) -> u64 {
    if contended { IDLE_NS } else { UNCONTENDED_POLL_NS }
}
