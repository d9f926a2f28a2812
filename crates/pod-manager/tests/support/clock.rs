//! Time that stands still until the test moves it. The manager's readings of it count its work.

use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_pod_manager::clock::Clock;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Clone)]
pub struct ManualClock {
    now: Arc<AtomicU64>,
    timer: Arc<EventFd>,
    /// How often the manager has seen the timer.
    acknowledged: Arc<AtomicU64>,
    /// It has done everything since, and waits.
    waits: Arc<AtomicBool>,
    /// The time for which it armed the timer last; 0: none.
    armed: Arc<AtomicU64>,
    /// How often the manager has read the clock, and how far each reading moves it.
    readings: Arc<AtomicU64>,
    step: Arc<AtomicU64>,
    /// This reading, and those behind it, do not return.
    last_reading: Arc<AtomicU64>,
}

impl ManualClock {
    pub fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let timer = EventFd::from_value_and_flags(0, flags).unwrap();
        let (acknowledged, waits, armed, readings, step) = Default::default();
        let (now, last_reading) = (AtomicU64::new(1_000_000_000), AtomicU64::new(u64::MAX));
        let (now, timer, last_reading) = (Arc::new(now), Arc::new(timer), Arc::new(last_reading));
        Self { now, timer, acknowledged, waits, armed, readings, step, last_reading }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// The time at which the manager is to be woken, if it waits for one.
    pub fn armed(&self) -> Option<u64> {
        Some(self.armed.load(Ordering::SeqCst)).filter(|at| *at > 0)
    }

    /// Returns once the manager waits for something to happen: it reads the time again only when woken.
    pub fn rest(&self) {
        let before = self.acknowledged.load(Ordering::SeqCst);
        self.timer.write(1).unwrap();
        super::until("the manager has nothing to do", || {
            self.acknowledged.load(Ordering::SeqCst) > before && self.waits.load(Ordering::SeqCst)
        });
    }

    /// Moves time on and does not wake the manager.
    pub fn pass(&self, ns: u64) {
        self.now.fetch_add(ns, Ordering::SeqCst);
    }

    /// From now on each reading moves time on.
    pub fn step_per_reading(&self, ns: u64) {
        self.step.store(ns, Ordering::SeqCst);
    }

    /// Moves time on and wakes the manager, which rests. Returns when it stands still in its next reading.
    pub fn advance_to_a_reading(&self, ns: u64) {
        let next = self.readings.load(Ordering::SeqCst) + 1;
        self.last_reading.store(next, Ordering::SeqCst);
        self.advance(ns);
        super::until("the manager reads the clock", || self.readings.load(Ordering::SeqCst) >= next);
    }

    /// Lets the manager read the clock so many times more, and returns when it has: it stands still in the next reading.
    pub fn let_read(&self, times: u64) {
        let last = self.readings.load(Ordering::SeqCst) + times;
        self.last_reading.store(last, Ordering::SeqCst);
        super::until("the manager reads the clock", || self.readings.load(Ordering::SeqCst) >= last);
    }

    /// The manager goes on.
    pub fn let_go(&self) {
        self.last_reading.store(u64::MAX, Ordering::SeqCst);
    }

    /// Moves time on and wakes the manager.
    pub fn advance(&self, ns: u64) {
        self.pass(ns);
        self.timer.write(1).unwrap();
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        let reading = self.readings.fetch_add(1, Ordering::SeqCst) + 1;
        while reading >= self.last_reading.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let step = self.step.load(Ordering::SeqCst);
        self.now.fetch_add(step, Ordering::SeqCst) + step
    }

    /// Ten ticks per nanosecond, so that the two cannot be mistaken for each other.
    fn ticks_at(&mut self, ns: u64) -> Option<u64> {
        Some(10 * ns)
    }

    fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn arm(&mut self, at: Option<u64>) -> io::Result<()> {
        self.armed.store(at.unwrap_or(0), Ordering::SeqCst);
        let is_due = at.is_some_and(|at| at <= self.now());
        if is_due {
            self.timer.write(1)?;
        }
        self.waits.store(!is_due, Ordering::SeqCst);
        Ok(())
    }

    fn acknowledge(&mut self) {
        let _ = self.timer.read();
        self.waits.store(false, Ordering::SeqCst);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}
