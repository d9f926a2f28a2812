//! A clock that a test sets.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use crate::platform::*;

/// A clock that stands still until it is set; ticks are nanoseconds, less those by which the counter was set back.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicU64, AtomicI64, AtomicU64);

impl ManualClock {
    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, SeqCst);
    }

    /// Sets the counter back by so many ticks, or forward.
    pub(crate) fn set_ticks_back(&self, ticks: i64) {
        self.1.store(ticks, SeqCst);
    }

    pub(crate) fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, SeqCst);
    }

    /// How often all threads were ordered.
    pub(crate) fn times_ordered(&self) -> u64 {
        self.2.load(SeqCst)
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn ticks(&self) -> u64 {
        self.now_ns().saturating_add_signed(-self.1.load(SeqCst))
    }

    fn pause(&self, ns: u64) {
        self.advance(ns);
        std::thread::yield_now();
    }

    fn spin(&self) {
        self.pause(1_000);
    }

    fn can_order_all_threads(&self) -> bool {
        false
    }

    fn order_all_threads(&self) -> bool {
        self.2.fetch_add(1, SeqCst);
        true
    }
}
