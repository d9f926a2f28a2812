//! Whether the time-stamp counter can still be compared with deadlines: a virtual machine that moves to another host finds another counter.

use super::Device;
use crate::platform::{Clock, Driver, TokenLink};

/// The largest difference between a deadline by the counter and by the clock that is not taken for a counter that was set, in nanoseconds.
/// The manager refreshes its calibration each second, so drift accounts for half a millisecond.
const TOLERANCE_NS: u64 = 2_000_000;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Compares both deadlines of the grant with their clocks. If they contradict each other, deadlines are compared as nanoseconds from
    /// here on, until the next connection. Called by the tracker, and by a launch that found the gate closed: the
    /// launch path takes its one comparison as it is.
    pub(super) fn check_counter(&self) {
        if !self.gate.compares_ticks() {
            return;
        }
        let before = self.clock.now_ns();
        let is_open = self.is_open();
        let deadline = self.link.deadline_ns();
        if deadline == 0 || deadline == u64::MAX {
            return;
        }
        // Read in this order, the deadline can only have been prolonged since the comparison.
        let is_late = is_open && before > deadline.saturating_add(TOLERANCE_NS);
        let may_be_early = !is_open && self.clock.now_ns().saturating_add(TOLERANCE_NS) < deadline;
        // A prolonged deadline is open by the counter, too.
        let is_early = may_be_early && !self.is_open() && self.link.deadline_ns() == deadline;
        if is_late || is_early {
            self.gate.set_deadline_in_ticks(false);
        }
    }
}
