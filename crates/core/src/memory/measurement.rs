//! The comparison of a client's charges with the memory that the driver reports for its processes.

use std::collections::VecDeque;

/// By how much the driver's report of the memory of processes may lag behind. A change of a charge within this time before a reading
/// may be missing in it.
pub const REPORT_LAG_NS: u64 = 200_000_000;

/// The largest charges of a client in the last periods. A reading was taken at some moment of a period, and the charge of that moment
/// is at most the largest of the period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct RecentCharges {
    /// End of each finished period and the largest charge in it, oldest first.
    finished: VecDeque<(u64, u64)>,
    /// Largest charge since the last finished period.
    current: u64,
}

impl RecentCharges {
    /// Records that the charge is now `bytes`.
    pub(super) fn record(&mut self, bytes: u64) {
        self.current = self.current.max(bytes);
    }

    /// Finishes the current period at `now`. Returns the largest charge since [`REPORT_LAG_NS`] before `taken`, when a reading was
    /// begun. `bytes`: the charge now.
    pub(super) fn finish_period(&mut self, taken: u64, now: u64, bytes: u64) -> u64 {
        self.finished.push_back((now, self.current));
        self.current = bytes;
        let since = taken.saturating_sub(REPORT_LAG_NS);
        while self.finished.front().is_some_and(|(end, _)| *end < since) {
            self.finished.pop_front();
        }
        self.finished.iter().map(|(_, most)| *most).max().unwrap_or(bytes).max(bytes)
    }
}
