//! The clocks of this machine.

use sluice_hook_core::platform::Clock;

/// CLOCK_MONOTONIC and the TSC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostClock;

impl Clock for HostClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        sluice_sys::clock::monotonic_ns()
    }

    #[inline]
    fn ticks(&self) -> u64 {
        sluice_sys::tsc::now()
    }

    fn pause(&self, ns: u64) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: i64::try_from(ns.min(999_999_999)).unwrap_or(0) };
        // SAFETY: the struct is valid for reading, and no remainder is asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }
}
