//! The engine's clock.

use sluice_hook_core::platform::Clock as _;
use sluice_preempt::driver::Clock;

use crate::clock::HostClock;

/// Longest pause that spins, in nanoseconds: a sleep takes longer than that.
const SPIN_NS: u64 = 5_000;

/// `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineClock;

impl Clock for EngineClock {
    fn now_ns(&self) -> u64 {
        HostClock.now_ns()
    }

    fn pause(&self, ns: u64) {
        if ns > SPIN_NS {
            HostClock.pause(ns);
            return;
        }
        let until = HostClock.now_ns() + ns;
        while HostClock.now_ns() < until {
            std::hint::spin_loop();
        }
    }
}
