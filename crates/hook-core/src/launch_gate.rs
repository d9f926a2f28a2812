//! The launch gate of one device: open or closed, the launches in flight, and the epoch of noted launches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::platform::{Clock, TokenLink};
use crate::thread_state;

/// Threads count their launches in one of this many shards, so that they do not share a cache line.
pub const SHARDS: usize = 64;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    entered: AtomicU64,
    left: AtomicU64,
}

/// The part of a device that every launch reads.
#[derive(Debug)]
#[repr(align(128))]
pub struct LaunchGate {
    /// This process holds a grant. The grant page holds the deadline; both must allow the launch.
    granted: AtomicBool,
    deadline_in_ticks: AtomicBool,
    /// Changes whenever launches have to be noted again: a grant began, a burst ended, a stream was waited for.
    epoch: AtomicU64,
    shards: [Shard; SHARDS],
}

impl Default for LaunchGate {
    fn default() -> Self {
        Self {
            granted: AtomicBool::new(false),
            deadline_in_ticks: AtomicBool::new(true),
            epoch: AtomicU64::new(1),
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }
}

impl LaunchGate {
    /// Whether launches may pass: this process holds a grant and its deadline is ahead.
    #[inline]
    pub fn is_open(&self, clock: &impl Clock, link: &impl TokenLink) -> bool {
        if !self.granted.load(SeqCst) {
            false
        } else if self.deadline_in_ticks.load(Relaxed) {
            clock.ticks() < link.deadline_ticks()
        } else {
            clock.now_ns() < link.deadline_ns()
        }
    }

    /// Counts a launch as in flight.
    ///
    /// The counter is changed before the gate is read, and the gate is closed before the counters are read (both sequentially
    /// consistent). So the drain sees the launch, or the launch sees the closed gate.
    #[inline]
    pub fn enter(&self, shard: usize) {
        self.shards[shard % SHARDS].entered.fetch_add(1, SeqCst);
    }

    /// The launch has been submitted, or given up.
    #[inline]
    pub fn leave(&self, shard: usize) {
        self.shards[shard % SHARDS].left.fetch_add(1, Release);
    }

    /// Whether a launch is in flight. Exact once the gate is closed.
    pub fn in_flight(&self) -> bool {
        self.shards.iter().any(|shard| {
            let left = shard.left.load(SeqCst);
            shard.entered.load(SeqCst) != left
        })
    }

    /// Launches begun since the start, including those that were refused or repeated.
    pub fn launches(&self) -> u64 {
        // A shard is two cache lines, and few processes have a thread for each shard.
        self.shards.iter().take(thread_state::shards_in_use()).map(|shard| shard.entered.load(Relaxed)).sum()
    }

    /// The current epoch.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Begins another epoch and returns it.
    pub fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, SeqCst) + 1
    }

    /// Opens the gate: a grant is held.
    pub fn open(&self) {
        self.next_epoch();
        self.granted.store(true, SeqCst);
    }

    /// Closes the gate, whatever deadline the page holds.
    pub fn close(&self) {
        self.granted.store(false, SeqCst);
        self.next_epoch();
    }

    /// Whether deadlines are compared as ticks.
    pub fn compares_ticks(&self) -> bool {
        self.deadline_in_ticks.load(Relaxed)
    }

    /// Chooses whether deadlines are compared as ticks or as nanoseconds.
    pub fn set_deadline_in_ticks(&self, by_ticks: bool) {
        self.deadline_in_ticks.store(by_ticks, Relaxed);
    }
}

#[cfg(test)]
mod tests;
