//! The thread of each device that keeps its connections, and the devices that are ready for launches.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::*;

use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::counters::COUNTERS;
use crate::process::{self, ManagedDevice};
use crate::settings::check_governed;
use crate::{fork, gpu, hold_kernel, thread};

/// How often to reconnect to a memory manager that was away.
const MEMORY_CHECK_NS: u64 = 250_000_000;

/// How long to wait after a failed start of the tracker.
const START_RETRY_NS: u64 = 100_000_000;

impl ManagedDevice {
    /// Starts the tracker if it does not run: it keeps the connections, which launches and allocations need. `false` if the system has no
    /// thread for it. Then calls bypass, and a later call tries again.
    pub(crate) fn track(&'static self) -> bool {
        if self.tracked.load(Acquire) {
            return true;
        }
        let now = HostClock.now_ns();
        if now < self.next_start_ns.load(Relaxed) {
            return false;
        }
        if self.tracked.swap(true, AcqRel)
            || thread::start(c"sluice-tracker", thread::SMALL_STACK_BYTES, move || self.run_tracker())
        {
            return true;
        }
        self.device.bypass_all();
        self.next_start_ns.store(now.saturating_add(START_RETRY_NS), Relaxed);
        self.tracked.store(false, Release);
        false
    }

    fn run_tracker(&'static self) {
        // A panic would leave all waiting launches blocked, so it is counted and the tracker goes on, up to a limit.
        for _ in 0..100 {
            if catch_unwind(AssertUnwindSafe(|| self.try_run_tracker())).is_ok() {
                return;
            }
            COUNTERS.panics.fetch_add(1, Relaxed);
        }
        self.device.bypass_all();
    }

    fn try_run_tracker(&'static self) {
        gpu::relax_capture_mode();
        let last_check_ns = Cell::new(0);
        self.device.run_tracker(fork::has_forked, || {
            hold_kernel::expire_and_count(self);
            let now = HostClock.now_ns();
            if now.saturating_sub(last_check_ns.get()) >= MEMORY_CHECK_NS {
                last_check_ns.set(now);
                self.memory.reattach_if_lost();
            }
        });
    }
}

/// The managed device of the calling thread's context, ready for launches.
#[cold]
pub(crate) fn device_for_launch() -> Result<&'static ManagedDevice, Bypass> {
    check_governed()?;
    // Queried once: a process with several devices comes here for each launch.
    gpu::count_devices();
    // Without a current context the launch may still go to a stream's context. With one device its gate is the only one.
    let only = || gpu::sees_one_device().then_some(0);
    let managed = process::device_of(gpu::current_device().or_else(only).ok_or(Bypass::NoContext)?)?;
    if !managed.track() {
        return Err(Bypass::InternalError);
    }
    if gpu::sees_one_device() {
        process::set_only_device(managed);
    }
    Ok(managed)
}
