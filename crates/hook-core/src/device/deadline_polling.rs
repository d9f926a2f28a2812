//! The tracker's polling around the end of a grant: for the deadline, then for the end of the work.

use sluice_comm::HandOffStep;

use super::Device;
use crate::deadline_polling::Step;
use crate::lock;
use crate::platform::{Clock, Driver, TokenLink};

/// The most streams that are queried ahead of a deadline, with the handles locked.
const QUERIED_STREAMS: usize = 8;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Pauses until `at` at most. Around the end of a grant for which another client waits, it polls for that end.
    pub(super) fn pause_until(&self, at: u64) {
        if let Some(until) = self.sleep_before(at) {
            return self.sleep_until(until);
        }
        self.clock.record_step(HandOffStep::TrackerPolls);
        self.prepare_return();
        let due = self.link.hand_off_ns();
        // A launch closes the gate before the deadline if its burst would not fit.
        while self.is_open() && self.clock.now_ns() < due.min(at) {
            self.clock.spin();
        }
    }

    /// Does ahead of the deadline what the return of the grant needs. The prediction is kept. The other results are not: the drain repeats
    /// these calls, and a call that was made 125 µs before takes a fraction of the time.
    fn prepare_return(&self) {
        if self.gate.is_ordered_by_drain() {
            let _ordered = self.clock.order_all_threads();
        }
        let mut state = self.lock();
        state.next_burst_ms = Some(state.predict_full_burst(self.clock.now_ns()));
        drop(state);
        let _handles = lock(&self.handles_lock);
        // With the handles locked: a beginning capture is counted, takes this lock, and only then calls the driver.
        if self.captures.any() {
            return;
        }
        let streams: Vec<_> = self.lock().streams.all().iter().take(QUERIED_STREAMS).copied().collect();
        for used in streams {
            if self.clock.now_ns() >= self.link.hand_off_ns() {
                return;
            }
            let _idle = self.driver.is_idle(used.context, used.stream);
        }
    }

    /// Until when to sleep before a step at `at`; `None`: poll.
    pub(super) fn sleep_before(&self, at: u64) -> Option<u64> {
        // Without a grant the expected hand-off concerns a launch, not the tracker.
        let step = if self.is_open() { self.polling_step() } else { Step::Sleep };
        match step {
            Step::Sleep => Some(at),
            Step::SleepUntil(before) => Some(at.min(before)),
            Step::Poll => None,
        }
    }

    /// Polls for something that is expected at the end of a grant. `false` if the time for that is over, or the grant ended at another time.
    pub(super) fn poll_for(&self, has_come: impl Fn() -> bool) -> bool {
        loop {
            if has_come() {
                return true;
            }
            if self.polling_step() != Step::Poll {
                return false;
            }
            self.clock.spin();
        }
    }

    /// The polling for this grant is over.
    pub(super) fn stop_polling_for_end(&self) {
        lock(&self.tracker_polling).stop(self.clock.now_ns());
    }

    fn polling_step(&self) -> Step {
        let now = self.clock.now_ns();
        let mut polling = lock(&self.tracker_polling);
        match self.link.hand_off_ns() {
            0 => {
                polling.stop(now);
                Step::Sleep
            }
            due => polling.next(due, now),
        }
    }
}
