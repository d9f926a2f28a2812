//! Time that stands still until the test moves it.

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
}

impl ManualClock {
    pub fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let timer = EventFd::from_value_and_flags(0, flags).unwrap();
        let (acknowledged, waits, armed) = Default::default();
        Self {
            now: Arc::new(AtomicU64::new(1_000_000_000)),
            timer: Arc::new(timer),
            acknowledged,
            waits,
            armed,
        }
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

    /// Moves time on and does not wake the manager: it was busy elsewhere, as it were.
    pub fn pass(&self, ns: u64) {
        self.now.fetch_add(ns, Ordering::SeqCst);
    }

    /// Moves time on and wakes the manager.
    pub fn advance(&self, ns: u64) {
        self.pass(ns);
        self.timer.write(1).unwrap();
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now()
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
