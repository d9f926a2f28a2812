//! Time slices while a latency-critical process works: short ones for best-effort groups, or the driver's default
//! for all.
//!
//! A host-bound latency-critical process, which submits work more slowly than the GPU executes it, gains nothing from short
//! slices and reports that. The report gives up a privilege of the reporting process, so it is taken as it is. As long
//! as one latency-critical process with work wants short slices, all best-effort groups have them.

use super::policy::{ChannelGroupPolicy, DEFAULT_SLICE_US};
use super::process::{Activity, Process};
use super::scheduler::ChannelGroupScheduler;
use crate::ids::ProcessId;
use sluice_rate_limiter::{Rate, RateLimiter};

/// How often default slices may begin: four times at once, as often as two processes need for a test each, and every 10 s in the
/// long run, however often a process changes its wish. Each begin and each end costs a control for every group.
const BEGIN_RATE: Rate = Rate::one_per(4, 10_000_000_000);

/// Whether default slices are in force.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SliceChoice {
    default: bool,
    begins: RateLimiter,
}

impl Default for SliceChoice {
    fn default() -> Self {
        Self { default: false, begins: RateLimiter::full(BEGIN_RATE) }
    }
}

impl SliceChoice {
    /// Slice of a best-effort group, microseconds.
    pub(super) const fn best_effort_us(&self, policy: &ChannelGroupPolicy) -> u64 {
        if self.default { DEFAULT_SLICE_US } else { policy.best_effort_slice_us }
    }

    /// Slice of a latency-critical group if so many of them have had work lately, microseconds.
    pub(super) const fn critical_us(&self, policy: &ChannelGroupPolicy, working_groups: usize) -> u64 {
        match working_groups {
            _ if self.default => DEFAULT_SLICE_US,
            0 | 1 => policy.long_us,
            _ => policy.shared_us,
        }
    }
}

impl ChannelGroupScheduler {
    /// Sets whether a process wants default slices. It counts only while the process is latency-critical.
    pub fn set_wants_default_slices(&mut self, id: ProcessId, wants: bool) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.wants_default_slices = wants;
        }
    }

    /// Whether best-effort groups have the driver's default slices beside latency-critical processes.
    pub const fn default_slices(&self) -> bool {
        self.slices.default
    }

    /// Chooses the slices. Short slices begin at once, default ones as often as the rate allows.
    pub(super) fn choose_slices(&mut self, now: u64) {
        self.slices.default =
            self.all_want_default_slices(now) && (self.slices.default || self.slices.begins.try_take(1, now));
    }

    /// When default slices may begin that are wanted and have to wait.
    pub(super) fn default_slices_at(&self, now: u64) -> Option<u64> {
        let waits = !self.slices.default && self.all_want_default_slices(now);
        self.slices.begins.ready_at(1).filter(|_| waits)
    }

    /// Whether there are latency-critical processes with work, and all of them want default slices.
    fn all_want_default_slices(&self, now: u64) -> bool {
        let mut working = self.working_critical(now).peekable();
        working.peek().is_some() && working.all(|process| process.wants_default_slices)
    }

    /// Notes which latency-critical processes have work, or had some since they were last observed.
    pub(super) fn observe_work(&mut self, now: u64) {
        let until = now.saturating_add(self.policy.absent_ns);
        for process in self.processes.values_mut().filter(|process| !process.is_best_effort()) {
            let Activity { busy, since_ns } = process.activity;
            if busy || since_ns != process.worked_since_ns {
                (process.worked_since_ns, process.works_until) = (since_ns, until);
            }
        }
    }

    /// The latency-critical processes that have had work in the last [`ChannelGroupPolicy::absent_ns`]. Others decide no slices: several
    /// groups with work need a short slice each, which a hold kernel of one of them would exceed again and again.
    pub(super) fn working_critical(&self, now: u64) -> impl Iterator<Item = &Process> {
        let critical = self.processes.values().filter(|process| !process.is_best_effort());
        critical.filter(move |process| now < process.works_until)
    }

    /// When the first process leaves [`Self::working_critical`] if no work comes.
    pub(super) fn next_absence(&self, now: u64) -> Option<u64> {
        self.working_critical(now).map(|process| process.works_until).min()
    }

    /// Whether this is a latency-critical process that was not working at the last plan: its work may need other slices.
    pub fn is_absent(&self, id: ProcessId, now: u64) -> bool {
        self.processes.get(&id).is_some_and(|process| !process.is_best_effort() && process.works_until <= now)
    }
}
