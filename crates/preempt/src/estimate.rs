//! Estimated durations of work, learned from measured batches.

use std::collections::HashMap;

use crate::command::Work;

/// Estimate for a kernel before one was measured.
const FIRST_NS: u64 = 100_000;
/// Assumed throughput of copies, in bytes per nanosecond.
const BYTES_PER_NS: u64 = 20;
/// Estimate for work of negligible duration.
const SMALL_NS: u64 = 2_000;
/// Largest factor by which an estimate grows: with the first measurement, and with each later batch.
const GROWTH_AT_FIRST: u64 = 16;
const GROWTH: u64 = 2;
/// Most kinds that are remembered. A program that creates kernels without end starts learning again.
const KINDS: usize = 4096;

/// Durations by kind of work.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    learned: HashMap<Work, u64>,
}

impl Estimates {
    /// The estimated duration of one piece of this work.
    pub(crate) fn of(&self, work: Work) -> u64 {
        self.learned.get(&work).copied().unwrap_or_else(|| first(work))
    }

    /// Learns that a batch with the given number of pieces of each kind took `measured_ns` in all.
    ///
    /// The split among the pieces is unknown, so all estimates are scaled by one factor. A batch of one kind takes at
    /// least as long as its pieces, so a shorter measurement is taken over at once. A longer one may include a pause
    /// of the program, or time in which another process had the GPU.
    pub(crate) fn learn(&mut self, pieces: &[(Work, u32)], measured_ns: u64) {
        let thought: u128 = pieces.iter().map(|&(work, n)| u128::from(self.of(work)) * u128::from(n)).sum();
        if thought == 0 {
            return;
        }
        if self.learned.len() > KINDS {
            self.learned.clear();
        }
        let lasts = |(work, _): &&(Work, u32)| !matches!(work, Work::Small);
        let alone = pieces.iter().filter(lasts).count() == 1;
        for &(work, _) in pieces.iter().filter(lasts) {
            let old = self.of(work);
            let fitting = u128::from(old) * u128::from(measured_ns) / thought;
            let fitting = u64::try_from(fitting).unwrap_or(u64::MAX).max(1);
            let between = old / 2 + fitting / 2 + (old & fitting & 1);
            let learned = match self.learned.contains_key(&work) {
                false => fitting.min(old.saturating_mul(GROWTH_AT_FIRST)),
                true if alone && fitting < old => fitting,
                true => between.min(old.saturating_mul(GROWTH)),
            };
            self.learned.insert(work, learned);
        }
    }
}

fn first(work: Work) -> u64 {
    match work {
        Work::Kernel(_) | Work::Graph(_) => FIRST_NS,
        Work::Bytes(power) => SMALL_NS + (1u64 << power.min(62)) / BYTES_PER_NS,
        Work::Small => SMALL_NS,
    }
}

#[cfg(test)]
mod tests;
