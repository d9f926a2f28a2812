//! Time that stands still until the test moves it.

use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_pod_manager::clock::Clock;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone)]
pub struct ManualClock {
    now: Arc<AtomicU64>,
    timer: Arc<EventFd>,
}

impl ManualClock {
    pub fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let timer = EventFd::from_value_and_flags(0, flags).unwrap();
        Self { now: Arc::new(AtomicU64::new(1_000_000_000)), timer: Arc::new(timer) }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Moves time on while the manager is busy elsewhere, as it were.
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
        if at.is_some_and(|at| at <= self.now()) {
            self.timer.write(1)?;
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        let _ = self.timer.read();
    }
}
