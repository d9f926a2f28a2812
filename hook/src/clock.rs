//! The clocks of this machine: CLOCK_MONOTONIC and the time-stamp counter.

use sluice_comm::HandOffStep;
use sluice_hook_core::platform::Clock;
use sluice_sys::step_log::StepLog;

use crate::leaked::Leaked;

/// Where steps of hand-offs are recorded, if a benchmark asks for it.
pub(crate) static STEPS: Leaked<StepLog> = Leaked::none();

/// Longest pause of the engine that spins, in nanoseconds: a sleep takes longer than that.
const SPIN_NS: u64 = 5_000;

/// The clock of devices and of the preemption engine.
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
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }

    fn spin(&self) {
        std::hint::spin_loop();
    }

    fn can_order_all_threads(&self) -> bool {
        sluice_sys::membarrier::register()
    }

    fn order_all_threads(&self) -> bool {
        sluice_sys::membarrier::all_threads()
    }

    fn record_step(&self, step: HandOffStep) {
        if let Some(steps) = STEPS.get() {
            steps.record(step as u8);
        }
    }
}

impl sluice_preempt::driver::Clock for HostClock {
    fn now_ns(&self) -> u64 {
        sluice_sys::clock::monotonic_ns()
    }

    fn pause(&self, ns: u64) {
        if ns > SPIN_NS {
            std::thread::sleep(std::time::Duration::from_nanos(ns));
            return;
        }
        let until = sluice_sys::clock::monotonic_ns() + ns;
        while sluice_sys::clock::monotonic_ns() < until {
            std::hint::spin_loop();
        }
    }
}
