//! Time in which a client held the GPU and executed nothing while another client waited.

use super::{Grant, GrantEnd, TokenLedger};

impl TokenLedger {
    /// Counts the time up to `now` in which a client waited that only the holders of grants kept from a grant. A client that
    /// waits for its limit does not count.
    pub(super) fn count_waiting(&mut self, now: u64) {
        let limit_allows_at = || self.queue.first_limited().map(|(at, _)| at);
        let ready_at = self.queue.first().map(|_| self.now).or_else(limit_allows_at);
        let Some(ready_at) = ready_at else { return };
        let waited_ns = now.saturating_sub(ready_at.max(self.now));
        self.grants.iter_mut().for_each(|grant| grant.count_waiting(waited_ns));
    }
}

impl Grant {
    /// Another client waited for `ns`. The report page of a hardware-scheduled process shows at any time whether the process
    /// has work. What a token-scheduled process executed is known when it returns the grant.
    fn count_waiting(&mut self, ns: u64) {
        if !self.hardware_scheduled || !self.works {
            self.waited_ns = self.waited_ns.saturating_add(ns);
        }
    }

    /// Time in which its processes executed nothing while another client waited, once all of them have left. A process that
    /// ended without a report counts as executing. A process that did not return the grant does not: most often its work
    /// waits for another process.
    pub(super) fn hold_and_wait_ns(&self, how: GrantEnd) -> u64 {
        let executed_ns = if how == GrantEnd::NotReturned { 0 } else { self.reported };
        self.waited_ns.min(self.held().saturating_sub(executed_ns))
    }
}
