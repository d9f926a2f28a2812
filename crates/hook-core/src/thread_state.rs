//! What one application thread remembers between calls, so that its launches need no shared data.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::launch_gate::SHARDS;

/// Streams that a thread remembers. If a thread alternates between more, some of its launches take the slow path.
const REMEMBERED: usize = 16;

/// After a reading of the clock that showed a deadline far ahead, so many launches of the thread pass without another one. A reading takes
/// half as long as the rest of the launch path, so the sixteenth part of it is left.
const UNREAD_LAUNCHES: u32 = 15;

/// A deadline is far ahead if it is at least this many ticks or nanoseconds ahead: 1 to 4 ms. Sixteen launches in a row take about 50 us.
const FAR: u64 = 1 << 22;

/// Threads count launches only in shards below this number.
static SHARDS_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Number of the launch gate's shards in use. Not exact while a thread makes its first call.
pub(crate) fn shards_in_use() -> usize {
    SHARDS_IN_USE.load(Relaxed)
}

/// The state of one thread. It has no destructor, so it may be thread-local in a library that other programs load.
///
/// The fields that each launch uses come first, on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadState {
    id: Cell<u32>,
    /// How many launches may still pass before `far_deadline` without a reading of the clock.
    unread: Cell<u32>,
    /// The deadline that the last reading of the clock showed far ahead.
    far_deadline: Cell<u64>,
    inside: Cell<bool>,
    known: [Cell<(u64, u64, u32)>; REMEMBERED],
}

impl ThreadState {
    /// A thread that has noted nothing.
    pub const fn empty() -> Self {
        Self {
            id: Cell::new(0),
            unread: Cell::new(0),
            far_deadline: Cell::new(0),
            inside: Cell::new(false),
            known: [const { Cell::new((0, 0, 0)) }; REMEMBERED],
        }
    }

    /// The number of this thread, from 1 on.
    #[inline]
    pub fn id(&self) -> u32 {
        let id = self.id.get();
        if id != 0 { id } else { self.first_id() }
    }

    #[cold]
    fn first_id(&self) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Relaxed).max(1);
        self.id.set(id);
        SHARDS_IN_USE.fetch_max(self.shard() + 1, Relaxed);
        id
    }

    /// The shard of the launch gate in which this thread counts.
    #[inline]
    pub fn shard(&self) -> usize {
        let id = self.id() as usize;
        if id < SHARDS { id } else { SHARDS + id % SHARDS }
    }

    /// Whether `deadline` is ahead. `now` reads the clock, unless one of the thread's last launches found the same deadline far ahead.
    ///
    /// So 15 launches at most may pass after a deadline: if they come so rarely that the deadline was far ahead
    /// at the reading, and the tracker, which closes the gate at the deadline, is late.
    #[inline]
    pub fn is_ahead(&self, deadline: u64, now: impl FnOnce() -> u64) -> bool {
        if self.far_deadline.get() == deadline
            && let Some(unread) = self.unread.get().checked_sub(1)
        {
            self.unread.set(unread);
            return true;
        }
        let left = deadline.saturating_sub(now());
        if left >= FAR {
            self.far_deadline.set(deadline);
            self.unread.set(UNREAD_LAUNCHES);
        }
        left > 0
    }

    /// Whether a launch on `stream` of device `device` has been noted in `epoch`.
    #[inline]
    pub fn has_noted(&self, device: u32, stream: u64, epoch: u64) -> bool {
        self.known[slot(stream)].get() == (stream, epoch, device)
    }

    /// Remembers that a launch on `stream` was noted in `epoch`.
    pub fn set_noted(&self, device: u32, stream: u64, epoch: u64) {
        self.known[slot(stream)].set((stream, epoch, device));
    }

    /// Forgets all streams: the current context may have changed, and with it the meaning of a handle like 0.
    pub fn forget(&self) {
        for known in &self.known {
            known.set((0, 0, 0));
        }
    }

    /// Enters a governed call; `None` if the thread is inside one already, because the driver called an exported function.
    #[inline]
    pub fn enter(&self) -> Option<GovernedCall<'_>> {
        if self.inside.replace(true) { None } else { Some(GovernedCall(&self.inside)) }
    }
}

/// Marks the thread as inside a governed call until it is dropped.
#[derive(Debug)]
pub struct GovernedCall<'a>(&'a Cell<bool>);

impl Drop for GovernedCall<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Handles are small numbers or addresses of objects, whose low bits are the same.
#[inline]
fn slot(stream: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "reduced below 16")]
    let slot = ((stream ^ (stream >> 5) ^ (stream >> 12)) as usize) % REMEMBERED;
    slot
}

#[cfg(test)]
mod tests;
