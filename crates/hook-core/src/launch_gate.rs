//! The launch gate of one device: open or closed, the launches in flight, and the epoch of noted launches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, compiler_fence};

use sluice_comm::page::UNLIMITED;

use crate::platform::{Clock, TokenLink};
use crate::thread_state::{self, ThreadState};

/// Threads whose numbers are below this count their launches in a shard of their own. Later threads share as many others.
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
    /// The drain can order the launches of all threads with its own accesses ([`Clock::order_all_threads`]).
    drain_orders: AtomicBool,
    /// The device's number. Each launch needs it; here it costs no cache line of its own.
    device: u32,
    shards: [Shard; 2 * SHARDS],
}

impl LaunchGate {
    /// The closed gate of device number `device`.
    pub fn closed(device: u32) -> Self {
        Self {
            granted: AtomicBool::new(false),
            deadline_in_ticks: AtomicBool::new(true),
            epoch: AtomicU64::new(1),
            drain_orders: AtomicBool::new(false),
            device,
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }

    /// The device's number.
    #[inline]
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Whether launches may pass: this process holds a grant and its deadline is ahead.
    pub fn is_open(&self, clock: &impl Clock, link: &impl TokenLink) -> bool {
        self.granted.load(SeqCst) && {
            let (deadline, now) = self.deadline(clock, link);
            deadline == UNLIMITED || now() < deadline
        }
    }

    /// Whether a launch of the calling thread may pass. As [`Self::is_open`], but not each launch reads the clock
    /// ([`ThreadState::is_ahead`]).
    #[inline]
    pub fn is_open_to(&self, thread: &ThreadState, clock: &impl Clock, link: &impl TokenLink) -> bool {
        self.granted.load(SeqCst) && {
            let (deadline, now) = self.deadline(clock, link);
            // That of an unlimited grant is ahead, whatever the time.
            deadline == UNLIMITED || thread.is_ahead(deadline, now)
        }
    }

    /// The deadline, and the clock with which it is compared.
    #[inline]
    fn deadline(&self, clock: &impl Clock, link: &impl TokenLink) -> (u64, impl Fn() -> u64) {
        let in_ticks = self.deadline_in_ticks.load(Relaxed);
        let deadline = if in_ticks { link.deadline_ticks() } else { link.deadline_ns() };
        (deadline, move || if in_ticks { clock.ticks() } else { clock.now_ns() })
    }

    /// From here on a thread with a shard of its own counts without locking the bus. The drain must call [`Clock::order_all_threads`]
    /// between [`Self::close`] and [`Self::in_flight`].
    pub fn set_ordered_by_drain(&self, ordered: bool) {
        self.drain_orders.store(ordered, SeqCst);
    }

    /// Whether the drain has to order the launches of all threads with its own accesses.
    pub fn is_ordered_by_drain(&self) -> bool {
        self.drain_orders.load(Relaxed)
    }

    /// Counts a launch as in flight.
    ///
    /// The drain must see the launch, or the launch must see the closed gate. So the counter is changed before the gate is read, and the
    /// gate is closed before the counters are read. Without the drain's help both orders need a locked instruction in each launch. With it,
    /// program order is enough: each thread passes a full barrier at some point between the drain's two accesses. If the launch reads the
    /// gate before that point, its count is visible to the drain. If it reads the gate after that point, it sees the gate closed.
    #[inline]
    pub fn enter(&self, shard: usize) {
        let entered = &self.shards[shard % self.shards.len()].entered;
        if self.has_own_shard(shard) {
            // No other thread writes the counter.
            entered.store(entered.load(Relaxed).wrapping_add(1), Relaxed);
            compiler_fence(SeqCst);
        } else {
            entered.fetch_add(1, SeqCst);
        }
    }

    /// The launch has been submitted, or given up.
    #[inline]
    pub fn leave(&self, shard: usize) {
        let left = &self.shards[shard % self.shards.len()].left;
        if self.has_own_shard(shard) {
            left.store(left.load(Relaxed).wrapping_add(1), Release);
        } else {
            left.fetch_add(1, Release);
        }
    }

    #[inline]
    fn has_own_shard(&self, shard: usize) -> bool {
        shard < SHARDS && self.drain_orders.load(Relaxed)
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
