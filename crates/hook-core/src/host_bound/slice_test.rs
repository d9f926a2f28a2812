//! One test: times bursts beside short and default slices in turn.

use super::{Burst, Slices};

/// Bursts that are timed in each block of a test.
const BLOCK: usize = 16;

/// Blocks of a test. Short and default slices alternate, so that a drift of the load does not count for either.
const BLOCKS: usize = 4;

/// How long bursts are not timed after the manager has changed the slices: a control takes 0.3 to 0.9 ms for each channel group.
const SETTLE_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct SliceTest {
    block: usize,
    /// Since when the slices of the block are known to be in force.
    in_force_since: Option<u64>,
    /// Durations beside short and beside default slices.
    times: [Vec<u64>; 2],
    /// Beside short slices: from the begin of the first timed burst of each block to the end of its last, and how long the host
    /// submitted meanwhile.
    passed_ns: u64,
    submitted_ns: u64,
    block_begun_ns: u64,
}

/// What a test has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    /// Medians of the bursts beside short and beside default slices, in nanoseconds.
    pub(super) medians_ns: (u64, u64),
    /// The part of the time beside short slices in which the host submitted, 0 to 1.
    pub(super) submitting: f64,
}

impl SliceTest {
    pub(super) fn new() -> Self {
        let times = || Vec::with_capacity(BLOCK * BLOCKS / 2);
        Self {
            block: 0,
            in_force_since: None,
            times: [times(), times()],
            passed_ns: 0,
            submitted_ns: 0,
            block_begun_ns: 0,
        }
    }

    /// The slices of the present block.
    pub(super) fn slices(&self) -> Slices {
        if self.block.is_multiple_of(2) { Slices::Short } else { Slices::Default }
    }

    /// Records a burst. Returns what the test has found after its last burst.
    pub(super) fn record(&mut self, burst: Burst, in_force: Slices) -> Option<Found> {
        let slices = self.slices();
        if in_force != slices {
            self.in_force_since = None;
            return None;
        }
        let since = *self.in_force_since.get_or_insert(burst.ended_ns);
        if burst.begun_ns < since.saturating_add(SETTLE_NS) || !burst.has_many_launches() {
            return None;
        }
        let times = &mut self.times[slices as usize];
        if times.len() == self.block / 2 * BLOCK {
            self.block_begun_ns = burst.begun_ns;
        }
        times.push(burst.ended_ns.saturating_sub(burst.begun_ns));
        let is_last = times.len() == (self.block / 2 + 1) * BLOCK;
        if slices == Slices::Short {
            self.submitted_ns += burst.waited_ns.saturating_sub(burst.begun_ns);
            let passed_ns = burst.ended_ns.saturating_sub(self.block_begun_ns);
            self.passed_ns += if is_last { passed_ns } else { 0 };
        }
        if !is_last {
            return None;
        }
        (self.block, self.in_force_since) = (self.block + 1, None);
        let [short, default] = &mut self.times;
        (self.block == BLOCKS).then(|| Found {
            medians_ns: (median(short), median(default)),
            submitting: self.submitted_ns as f64 / self.passed_ns.max(1) as f64,
        })
    }
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
