//! The launch gate of one device: open or closed, who is in the middle of a launch, and the epoch of what was noted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::platform::{Clock, TokenLink};
use crate::thread;

/// Threads count themselves in one of this many places, so that they do not share a cache line.
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
pub struct Gate {
    /// This side's half of the gate: the page says until when, this says whether we still hold the grant at all.
    held: AtomicBool,
    by_ticks: AtomicBool,
    /// Changes whenever launches have to be noted again: a grant began, a burst ended, a stream was waited for.
    epoch: AtomicU64,
    shards: [Shard; SHARDS],
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            held: AtomicBool::new(false),
            by_ticks: AtomicBool::new(true),
            epoch: AtomicU64::new(1),
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }
}

impl Gate {
    /// Whether launches may pass: we hold a grant and its deadline is ahead.
    #[inline]
    pub fn is_open(&self, clock: &impl Clock, link: &impl TokenLink) -> bool {
        if !self.held.load(SeqCst) {
            false
        } else if self.by_ticks.load(Relaxed) {
            clock.ticks() < link.deadline_ticks()
        } else {
            clock.now_ns() < link.deadline_ns()
        }
    }

    /// Counts a thread as being in the middle of a launch.
    ///
    /// The counter is changed before the gate is read and the gate closed before the counters are read (both sequentially
    /// consistent), so whoever drains sees either the launch or a launch that sees the closed gate.
    #[inline]
    pub fn enter(&self, shard: usize) {
        self.shards[shard % SHARDS].entered.fetch_add(1, SeqCst);
    }

    /// The launch has been submitted, or given up.
    #[inline]
    pub fn leave(&self, shard: usize) {
        self.shards[shard % SHARDS].left.fetch_add(1, Release);
    }

    /// Whether a thread is in the middle of a launch. Exact once the gate is closed.
    pub fn in_flight(&self) -> bool {
        self.shards.iter().any(|shard| {
            let left = shard.left.load(SeqCst);
            shard.entered.load(SeqCst) != left
        })
    }

    /// Launches begun since the start, those that were turned away or repeated included.
    pub fn launches(&self) -> u64 {
        // A shard is two cache lines, and few processes have a thread for each of them.
        self.shards.iter().take(thread::shards_in_use()).map(|shard| shard.entered.load(Relaxed)).sum()
    }

    /// The epoch that launches are noted in.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Begins another epoch and returns it.
    pub fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, SeqCst) + 1
    }

    /// Opens this side of the gate.
    pub fn open(&self) {
        self.next_epoch();
        self.held.store(true, SeqCst);
    }

    /// Closes this side of the gate, whatever the page says.
    pub fn close(&self) {
        self.held.store(false, SeqCst);
        self.next_epoch();
    }

    /// Chooses what deadlines are compared with.
    pub fn compare_ticks(&self, by_ticks: bool) {
        self.by_ticks.store(by_ticks, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{FakeLink, ManualClock};
    use crate::thread::Thread;

    #[test]
    fn the_gate_is_open_until_the_tick_of_the_deadline() {
        let (gate, clock, link) = (Gate::default(), ManualClock::default(), FakeLink::default());
        link.set_deadline(1000);
        gate.open();
        clock.set(999);
        assert!(gate.is_open(&clock, &link));
        clock.set(1000);
        assert!(!gate.is_open(&clock, &link));
    }

    #[test]
    fn a_grant_that_was_given_back_is_closed_before_the_manager_has_heard_of_it() {
        let (gate, clock, link) = (Gate::default(), ManualClock::default(), FakeLink::default());
        link.set_deadline(u64::MAX);
        gate.open();
        assert!(gate.is_open(&clock, &link));
        gate.close();
        assert!(!gate.is_open(&clock, &link));
    }

    #[test]
    fn a_thread_in_the_middle_of_a_launch_is_seen_until_it_leaves() {
        let (gate, shard) = (Gate::default(), Thread::new().shard());
        gate.enter(shard);
        assert!(gate.in_flight());
        gate.leave(shard);
        assert!(!gate.in_flight());
        assert_eq!(gate.launches(), 1);
    }

    #[test]
    fn streams_must_be_noted_again_after_the_gate_opened_or_closed() {
        let gate = Gate::default();
        let first = gate.epoch();
        gate.open();
        let second = gate.epoch();
        gate.close();
        assert!(first < second && second < gate.epoch());
    }
}
