//! Failed controls of one group, and when they are tried again.
//!
//! A failed control is repeated once at once, whatever the driver's status: a control can be repeated without harm, and no
//! list tells which statuses pass. If it fails again, the group waits: 1 s at first, then 2, 4 and at most 8 s.
//! Therefore a group is controlled again at most 8 s after the driver has recovered, however long the failure lasted.

use super::control::ControlOp;
use sluice_rate_limiter::Backoff;
use std::time::Duration;

/// How often a control is tried in a row before the group waits.
const TRIES: u8 = 2;
/// The first and the longest delay before the next try.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// After this time without a failure the next delay is the first one again, nanoseconds.
const FORGIVEN_NS: u64 = 60_000_000_000;

/// Controls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Attempts {
    /// Failures in a row.
    failures: u8,
    /// No further control of this kind until the delay has passed.
    waits: bool,
}

/// Failures of one group's controls: those that set the slice, and those that disable or enable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Failures {
    slice: Attempts,
    run: Attempts,
    backoff: Backoff,
}

impl Failures {
    pub(super) const fn none() -> Self {
        let none = Attempts { failures: 0, waits: false };
        Self { slice: none, run: none, backoff: Backoff::new(DELAYS.0, DELAYS.1) }
    }

    /// Records the result of a control. Failures of both kinds in one round of tries lengthen the delay once.
    pub(super) fn record(&mut self, op: ControlOp, succeeded: bool, now: u64) {
        let attempts = match op {
            ControlOp::SetSlice(_) => &mut self.slice,
            ControlOp::Disable | ControlOp::Enable => &mut self.run,
        };
        if succeeded {
            *attempts = Attempts::default();
            return;
        }
        attempts.failures = attempts.failures.saturating_add(1).min(TRIES);
        attempts.waits = attempts.failures >= TRIES;
        if attempts.waits && self.backoff.is_ready(now) {
            if now >= self.backoff.ready_at().saturating_add(FORGIVEN_NS) {
                self.backoff.succeeded();
            }
            self.backoff.failed(now);
        }
    }

    /// Lets every control be tried again at once. The delay before the group is trusted stays.
    pub(super) fn restart(&mut self) {
        (self.slice, self.run) = (Attempts::default(), Attempts::default());
    }

    /// Allows one more try of each control that waits, if the delay has passed.
    pub(super) fn retry(&mut self, now: u64) {
        if self.backoff.is_ready(now) {
            (self.slice.waits, self.run.waits) = (false, false);
        }
    }

    /// A control failed as often as it is tried in a row.
    pub(super) const fn any(&self) -> bool {
        self.slice_failed() || self.run.failures >= TRIES
    }

    /// The slice could not be set, and has not been set since.
    pub(super) const fn slice_failed(&self) -> bool {
        self.slice.failures >= TRIES
    }

    /// Whether controls that set the slice wait.
    pub(super) const fn slice_waits(&self) -> bool {
        self.slice.waits
    }

    /// Whether controls that disable or enable wait.
    pub(super) const fn run_waits(&self) -> bool {
        self.run.waits
    }

    /// When the delay after the last failure ends.
    pub(super) const fn wait_until(&self) -> u64 {
        self.backoff.ready_at()
    }
}
