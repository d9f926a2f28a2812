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
}

impl SliceTest {
    pub(super) fn new() -> Self {
        let times = || Vec::with_capacity(BLOCK * BLOCKS / 2);
        Self { block: 0, in_force_since: None, times: [times(), times()] }
    }

    /// The slices of the present block.
    pub(super) fn slices(&self) -> Slices {
        if self.block.is_multiple_of(2) { Slices::Short } else { Slices::Default }
    }

    /// Records a burst. Returns the medians beside short and default slices after the last burst of the test.
    pub(super) fn record(&mut self, burst: Burst, in_force: Slices) -> Option<(u64, u64)> {
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
        times.push(burst.ended_ns.saturating_sub(burst.begun_ns));
        if times.len() < (self.block / 2 + 1) * BLOCK {
            return None;
        }
        (self.block, self.in_force_since) = (self.block + 1, None);
        let [short, default] = &mut self.times;
        (self.block == BLOCKS).then(|| (median(short), median(default)))
    }
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
