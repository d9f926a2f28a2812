//! The exported GPU time of a client.

use sluice_core::share::Share;
use sluice_core::window::SlidingSum;

/// GPU time that a client used, as metrics and the node agent show it. It decides nothing.
#[derive(Debug)]
pub(crate) struct GpuTime {
    window: SlidingSum,
    window_ns: u64,
    added: u64,
    /// Up to when it is counted.
    counted_at: u64,
    /// What had been used by then, with an estimate of the running grant, nanoseconds.
    estimated_ns: u64,
    /// Reported by its processes since then, nanoseconds.
    busy_ns: u64,
    /// Reported by its processes since the ledger charged it last, nanoseconds.
    uncharged_ns: u64,
    /// Counted so far, nanoseconds.
    pub(crate) total_ns: u64,
}

impl GpuTime {
    pub(crate) fn new(window_ns: u64, now: u64) -> Self {
        let window = SlidingSum::new(window_ns);
        Self {
            window,
            window_ns,
            added: now,
            counted_at: now,
            estimated_ns: 0,
            busy_ns: 0,
            uncharged_ns: 0,
            total_ns: 0,
        }
    }

    /// Adds time for which a process reported work.
    pub(crate) fn add_busy(&mut self, busy_ns: u64) {
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
        self.uncharged_ns = self.uncharged_ns.saturating_add(busy_ns);
    }

    /// The ledger has charged all that was used so far.
    pub(crate) fn was_charged(&mut self) {
        self.uncharged_ns = 0;
    }

    /// Counts up to `now`, when the ledger has charged `charged_ns` in all and a grant has been running for `running_ns`. With `by_report`, no
    /// more than was reported. Returns what was added, nanoseconds.
    pub(crate) fn count(&mut self, now: u64, charged_ns: u64, running_ns: u64, by_report: bool) -> u64 {
        // If less is charged for the running grant at its end, nothing is added until that is made up for.
        let estimate = charged_ns.saturating_add(running_ns.min(self.uncharged_ns));
        let more = estimate.saturating_sub(self.estimated_ns);
        let reported = std::mem::take(&mut self.busy_ns);
        let used = if by_report { more.min(reported) } else { more };
        self.window.add(self.counted_at, now, used);
        (self.estimated_ns, self.counted_at) = (self.estimated_ns.max(estimate), now);
        self.total_ns = self.total_ns.saturating_add(used);
        used
    }

    /// Adds time that the ledger does not know.
    pub(crate) fn add_unseen(&mut self, from: u64, to: u64, used_ns: u64) -> u64 {
        self.window.add(from, to, used_ns);
        self.counted_at = self.counted_at.max(to);
        self.total_ns = self.total_ns.saturating_add(used_ns);
        used_ns
    }

    /// The part of the GPU that it used in the window before `now`, or since it was added if that is shorter.
    pub(crate) fn share(&self, now: u64) -> Share {
        Share::ratio(self.window.total(now), self.window_ns.min(now.saturating_sub(self.added)))
    }
}

#[cfg(test)]
mod tests;
