//! Memory of a process as NVML reports it: whole blocks, contexts and modules included, and possibly some time ago.

use std::collections::VecDeque;

/// Size of the blocks in which the driver takes memory for `cuMemAlloc`: 2 MiB.
const BLOCK: u64 = 2 << 20;

/// What NVML reports of one process.
#[derive(Debug, Default)]
pub(super) struct ReportedMemory {
    /// Requested bytes of all allocations smaller than a block; they share blocks.
    small: u64,
    /// Bytes of the blocks of all other allocations.
    blocks: u64,
    /// Total from each of these times on, in order. The first one may be older than the lag, the others are not.
    history: VecDeque<(u64, u64)>,
}

impl ReportedMemory {
    /// Counts an allocation of this many requested bytes.
    pub(super) fn allocate(&mut self, bytes: u64) {
        if bytes < BLOCK {
            self.small += bytes;
        } else {
            self.blocks += bytes.next_multiple_of(BLOCK);
        }
    }

    /// Counts the end of an allocation of this many requested bytes.
    pub(super) fn free(&mut self, bytes: u64) {
        let (counted, bytes) = match bytes {
            small if small < BLOCK => (&mut self.small, small),
            large => (&mut self.blocks, large.next_multiple_of(BLOCK)),
        };
        *counted = counted.saturating_sub(bytes);
    }

    /// Counts the end of all allocations.
    pub(super) fn clear(&mut self) {
        (self.small, self.blocks) = (0, 0);
    }

    /// Bytes of the blocks in use.
    fn allocated(&self) -> u64 {
        self.blocks + self.small.next_multiple_of(BLOCK)
    }

    /// Records the total at a time, with what contexts and modules take.
    pub(super) fn record(&mut self, context_bytes: u64, now: u64, lag_ns: u64) {
        self.history.push_back((now, self.allocated() + context_bytes));
        while self.history.get(1).is_some_and(|(at, _)| at.saturating_add(lag_ns) <= now) {
            self.history.pop_front();
        }
    }

    /// Total at a time.
    pub(super) fn at(&self, time: u64) -> u64 {
        self.history.iter().rev().find(|(at, _)| *at <= time).map_or(0, |(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests;
