//! Times on the pages that a pod-manager shares: they are of its CLOCK_MONOTONIC, which differs from this process's if this process is in a
//! time namespace (CRIU, `unshare --time`). Ticks of the time-stamp counter do not differ.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use sluice_hook_core::burst_admission::UrgentWork;

/// The difference between the two clocks. The manager is in the initial time namespace.
#[derive(Debug)]
pub(crate) struct ManagerClock {
    /// By how much this process's clock is ahead, in nanoseconds.
    ahead_ns: AtomicI64,
}

impl ManagerClock {
    /// The same clock.
    pub(crate) const fn same() -> Self {
        Self { ahead_ns: AtomicI64::new(0) }
    }

    /// Reads the difference. A process that was restored from a checkpoint attaches anew, and may be in another namespace then. Without a
    /// result the last one stays.
    pub(crate) fn measure(&self) {
        if let Some(ahead) = sluice_sys::clock::namespace_offset_ns() {
            self.ahead_ns.store(ahead, Relaxed);
        }
    }

    /// A time of the manager's on this process's clock. 0 and `u64::MAX` are no times.
    #[inline]
    pub(crate) fn to_own(&self, at_ns: u64) -> u64 {
        shifted(at_ns, self.ahead_ns.load(Relaxed))
    }

    /// A time of this process's on the manager's clock.
    #[inline]
    pub(crate) fn to_managers(&self, at_ns: u64) -> u64 {
        shifted(at_ns, self.ahead_ns.load(Relaxed).saturating_neg())
    }

    /// The meaning of the page's word for urgent work.
    #[inline]
    pub(crate) fn urgent_work(&self, word: u64) -> UrgentWork {
        match UrgentWork::of_word(word) {
            UrgentWork::At(at_ns) => UrgentWork::At(self.to_own(at_ns)),
            other => other,
        }
    }
}

#[inline]
fn shifted(at_ns: u64, by_ns: i64) -> u64 {
    match at_ns {
        0 | u64::MAX => at_ns,
        _ => at_ns.saturating_add_signed(by_ns).clamp(1, u64::MAX - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shifted_and_words_without_a_time_are_not() {
        let clock = ManagerClock { ahead_ns: AtomicI64::new(-100) };
        assert_eq!((clock.to_own(1_000), clock.to_managers(900)), (900, 1_000));
        assert_eq!((clock.to_own(0), clock.to_own(u64::MAX)), (0, u64::MAX));
        assert_eq!(clock.to_own(50), 1, "a time before the clock's begin is not taken for none");
        let urgent = [0, sluice_comm::page::grant::URGENT_NOW, 500].map(|word| clock.urgent_work(word));
        assert_eq!(urgent, [UrgentWork::None, UrgentWork::Now, UrgentWork::At(400)]);
    }
}
