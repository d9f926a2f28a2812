//! The last durations of something, for their median and their maximum. Nothing is allocated.

/// Durations that are kept. A request of an LLM is one prefill and some fifty tokens: both kinds of burst are among them.
const KEPT: usize = 64;

/// Durations that are needed for a median.
const NEEDED: usize = 4;

/// The median follows each of the first durations, then each eighth: sorting takes about a microsecond.
const UPDATE_EVERY: usize = 8;

/// The last [`KEPT`] durations, nanoseconds.
#[derive(Debug)]
pub(super) struct RecentDurations {
    ring: [u64; KEPT],
    added: usize,
    median: Option<u64>,
    longest: Option<u64>,
}

impl Default for RecentDurations {
    fn default() -> Self {
        Self { ring: [0; KEPT], added: 0, median: None, longest: None }
    }
}

impl RecentDurations {
    /// Adds a duration.
    pub(super) fn add(&mut self, ns: u64) {
        if let Some(oldest) = self.ring.get_mut(self.added % KEPT) {
            *oldest = ns;
        }
        self.added = self.added.wrapping_add(1).max(1);
        self.longest = self.longest.max(Some(ns));
        if self.added <= UPDATE_EVERY || self.added.is_multiple_of(UPDATE_EVERY) {
            let mut sorted = self.ring;
            let kept = &mut sorted[..self.added.min(KEPT)];
            kept.sort_unstable();
            self.longest = kept.last().copied();
            self.median = kept.get(kept.len() / 2).copied().filter(|_| kept.len() >= NEEDED);
        }
    }

    /// The upper median; `None` while there are too few.
    pub(super) fn median(&self) -> Option<u64> {
        self.median
    }

    /// The longest duration; `None` while there is none.
    pub(super) fn longest(&self) -> Option<u64> {
        self.longest
    }
}
