//! The memory that a client shares with the daemon: a ring of commands, and words with the progress of the GPU.
//!
//! Any thread of the client adds commands; only the daemon removes them. A slot of the ring is claimed by moving
//! [`TAIL`], filled, and then marked as full with its ticket; so tickets are the order of submission.

use super::record::{self, Record};
use sluice_sys::futex;
use sluice_sys::page::SharedRegion;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Slots of the ring.
pub(crate) const RING: u64 = 8_192;
/// Streams that a process can have at once.
pub(crate) const STREAMS: usize = 8_192;
/// Events with a time that a process can have at once.
pub(crate) const EVENTS: usize = 65_536;

const RECORD_WORDS: usize = 1 + record::WORDS;
const PARKED: usize = 0;
const PUBLISHING: usize = 1;
const NEXT_EVENT: usize = 2;
const NOTIFY: usize = 3;
const LOCKED: usize = 5;
const HEAD: usize = 4;
const TAIL: usize = 8;
const RECORDS: usize = 16;
const COMPLETED: usize = RECORDS + 8_192 * RECORD_WORDS;
const TIMES: usize = COMPLETED + STREAMS;
const WORDS: usize = TIMES + EVENTS;
const _: () = assert!(RING == 8_192);

pub(crate) struct Region(SharedRegion);

impl Region {
    /// Creates the memory, on the daemon's side.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let (region, fd) = SharedRegion::create("sluice-sim", WORDS)?;
        Ok((Self(region), fd))
    }

    /// Maps the memory, on the client's side.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        SharedRegion::map(fd, WORDS).map(Self)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.words()[index]
    }

    fn slot(&self, ticket: u64) -> &[AtomicU64] {
        let index = usize::try_from(ticket % RING).unwrap_or(0);
        let begin = RECORDS + index * RECORD_WORDS;
        &self.0.words()[begin..begin + RECORD_WORDS]
    }

    /// Puts a command into the ring and returns its ticket. While there is no room, `full` is called and returns
    /// whether the daemon is alive; without a daemon, overwritten commands would never be read. `claimed` is called with
    /// the ticket before the daemon can read the command.
    pub(crate) fn push(&self, record: &Record, full: impl Fn() -> bool, claimed: impl FnOnce(u64)) -> u64 {
        let ticket = self.word(TAIL).fetch_add(1, Ordering::Relaxed);
        while ticket >= self.word(HEAD).load(Ordering::Acquire) + RING && full() {}
        claimed(ticket);
        let slot = self.slot(ticket);
        for (word, value) in slot[1..].iter().zip(record.encode()) {
            word.store(value, Ordering::Relaxed);
        }
        slot[0].store(ticket + 1, Ordering::Release);
        ticket
    }

    /// Whether other threads have put commands behind the one with this ticket. They may have woken the daemon before this
    /// command was complete, and the daemon reads no command behind an incomplete one.
    pub(crate) fn has_followers(&self, ticket: u64) -> bool {
        fence(Ordering::SeqCst);
        self.word(TAIL).load(Ordering::Relaxed) > ticket + 1
    }

    /// Removes the next command, on the daemon's side. Invalid records are skipped.
    pub(crate) fn pop(&self) -> Option<Option<Record>> {
        let head = self.word(HEAD).load(Ordering::Relaxed);
        let slot = self.slot(head);
        if slot[0].load(Ordering::Acquire) != head + 1 {
            return None;
        }
        let mut words = [0; RECORD_WORDS - 1];
        for (value, word) in words.iter_mut().zip(&slot[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
        self.word(HEAD).store(head + 1, Ordering::Release);
        Some(Record::decode(words))
    }

    pub(crate) fn wake_full(&self) {
        let _ = futex::wake_low(self.word(HEAD), u32::MAX);
    }

    /// Waits for room in the ring, at most 1 ms.
    pub(crate) fn wait_full(&self) {
        let head = self.word(HEAD);
        let _ = futex::wait_low(head, low(head.load(Ordering::Acquire)), Some(Duration::from_millis(1)));
    }

    /// Called when the daemon is about to sleep: from here on, commands that cannot wait must wake it.
    pub(crate) fn park(&self) {
        self.word(PARKED).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn unpark(&self) {
        self.word(PARKED).store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_parked(&self) -> bool {
        fence(Ordering::SeqCst);
        self.word(PARKED).load(Ordering::Relaxed) != 0
    }

    /// Publishes the last completed command of streams and the times of events, from the daemon's side. A reader of
    /// [`snapshot`](Self::snapshot) sees all of these changes or none.
    pub(crate) fn publish(&self, next_event_ns: u64, completed: &[(usize, u64)], times: &[(usize, u64)]) {
        let epoch = self.word(PUBLISHING).load(Ordering::Relaxed);
        self.word(PUBLISHING).store(epoch | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.word(NEXT_EVENT).store(next_event_ns, Ordering::Relaxed);
        for (event, ns) in times {
            self.word(TIMES + event % EVENTS).store(*ns, Ordering::Release);
        }
        for (slot, seq) in completed {
            self.word(COMPLETED + slot % STREAMS).store(*seq, Ordering::Release);
        }
        self.word(PUBLISHING).store((epoch | 1) + 1, Ordering::Release);
    }

    /// A consistent reading: `read` runs again if the daemon changed anything during it.
    pub(crate) fn snapshot<T>(&self, mut read: impl FnMut() -> T) -> T {
        for _ in 0..10_000 {
            let before = self.word(PUBLISHING).load(Ordering::Acquire);
            if before & 1 == 0 {
                let value = read();
                fence(Ordering::Acquire);
                if self.word(PUBLISHING).load(Ordering::Relaxed) == before {
                    return value;
                }
            }
            std::thread::yield_now();
        }
        // The daemon died while publishing: nothing changes any more.
        read()
    }

    /// The number of the last completed command of a stream.
    pub(crate) fn completed(&self, slot: usize) -> u64 {
        self.word(COMPLETED + slot % STREAMS).load(Ordering::Acquire)
    }

    /// Waits until a stream's word is no longer `seen`, or for `timeout`.
    pub(crate) fn wait_completed(&self, slot: usize, seen: u64, timeout: Duration) {
        let _ = futex::wait_low(self.word(COMPLETED + slot % STREAMS), low(seen), Some(timeout));
    }

    pub(crate) fn time(&self, event: usize) -> u64 {
        self.word(TIMES + event % EVENTS).load(Ordering::Acquire)
    }

    /// The earliest time at which another command that the daemon has read can complete.
    pub(crate) fn next_event_ns(&self) -> u64 {
        self.word(NEXT_EVENT).load(Ordering::Acquire)
    }

    /// Whether the daemon has read all commands up to a ticket.
    pub(crate) fn is_read(&self, ticket: u64) -> bool {
        self.word(HEAD).load(Ordering::Acquire) > ticket
    }

    /// A number that changes whenever a watched command has completed.
    pub(crate) fn notified(&self) -> u64 {
        self.word(NOTIFY).load(Ordering::Acquire)
    }

    /// Waits until [`notified`](Self::notified) is no longer `seen`, or for `timeout`.
    pub(crate) fn wait_notified(&self, seen: u64, timeout: Duration) {
        let _ = futex::wait_low(self.word(NOTIFY), low(seen), Some(timeout));
    }

    /// Locks the process at its next call, or unlocks it, on the daemon's side.
    pub(crate) fn set_locked(&self, is_locked: bool) {
        self.word(LOCKED).store(is_locked.into(), Ordering::Release);
        let _ = futex::wake_low(self.word(LOCKED), u32::MAX);
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.word(LOCKED).load(Ordering::Acquire) != 0
    }

    pub(crate) fn wait_unlocked(&self, timeout: Duration) {
        let _ = futex::wait_low(self.word(LOCKED), 1, Some(timeout));
    }

    /// Wakes the threads that wait for this stream, on the daemon's side.
    pub(crate) fn wake(&self, slot: usize) {
        let _ = futex::wake_low(self.word(COMPLETED + slot % STREAMS), u32::MAX);
        self.wake_notified();
    }

    /// Changes the notified word and wakes the threads that wait for it.
    pub(crate) fn wake_notified(&self) {
        self.word(NOTIFY).fetch_add(1, Ordering::Release);
        let _ = futex::wake_low(self.word(NOTIFY), u32::MAX);
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}
