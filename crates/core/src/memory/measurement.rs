//! The comparison of a client's charges with the memory that the driver reports for its processes.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// By how much the driver's report of the memory of processes may lag behind. A change of a charge within this time before a reading
/// may be missing in it.
pub const REPORT_LAG_NS: u64 = 200_000_000;

/// The smallest and the largest charge of a client in each of the last periods. A reading was taken at some moment of a period, and the
/// charge of that moment is between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct RecentCharges {
    /// End of each finished period with its charges, oldest first.
    finished: VecDeque<(u64, Charges)>,
    current: Charges,
    /// The charge now.
    last: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Charges {
    least: u64,
    most: u64,
}

impl Charges {
    fn include(&mut self, other: Self) {
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }
}

impl RecentCharges {
    /// Records that the charge is now `bytes`.
    pub(super) fn record(&mut self, bytes: u64) {
        self.current.include(Charges { least: bytes, most: bytes });
        self.last = bytes;
    }

    /// Whether the charge was larger since the last reading than it is now.
    pub(super) fn released_since_reading(&self) -> bool {
        self.current.most > self.last
    }

    /// Finishes the current period at `now`. Returns the smallest and the largest charge since [`REPORT_LAG_NS`] before `taken`, when a
    /// reading was begun. `bytes`: the charge now.
    pub(super) fn finish_period(&mut self, taken: u64, now: u64, bytes: u64) -> RangeInclusive<u64> {
        self.finished.push_back((now, self.current));
        self.current = Charges { least: bytes, most: bytes };
        let since = taken.saturating_sub(REPORT_LAG_NS);
        while self.finished.front().is_some_and(|(end, _)| *end < since) {
            self.finished.pop_front();
        }
        let mut charges = self.current;
        self.finished.iter().for_each(|(_, period)| charges.include(*period));
        charges.least..=charges.most
    }
}
