//! The tracker's thread, one for each device.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::gpu;
use crate::hold_kernel;
use crate::preempt;
use crate::process::{self, ManagedDevice};
use crate::thread;

/// How often to reconnect to a memory manager that was away.
const MEMORY_CHECK_NS: u64 = 250_000_000;

/// Starts the tracker of a device; `false` if the system gives no thread.
pub(crate) fn start(managed: &'static ManagedDevice) -> bool {
    thread::start(thread::SMALL_STACK_BYTES, run_thread, std::ptr::from_ref(managed).cast_mut().cast())
}

extern "C" fn run_thread(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the argument is the device that `start` passed, which is never freed.
    let managed: &'static ManagedDevice = unsafe { &*argument.cast::<ManagedDevice>() };
    thread::configure_current(c"sluice-tracker");
    // A panic would leave all waiting launches blocked, so it is counted and the tracker goes on, up to a limit.
    for _ in 0..100 {
        let ran = catch_unwind(AssertUnwindSafe(|| track(managed)));
        if ran.is_ok() {
            return std::ptr::null_mut();
        }
        process::COUNTERS.panics.fetch_add(1, Relaxed);
    }
    managed.device.bypass_all();
    std::ptr::null_mut()
}

fn track(managed: &'static ManagedDevice) {
    gpu::relax_capture_mode();
    let last_check_ns = AtomicU64::new(0);
    managed.device.run_tracker(process::has_forked, || {
        hold_kernel::expire_and_count(managed);
        preempt::manager::follow_gate_word(managed);
        let now = HostClock.now_ns();
        if now.saturating_sub(last_check_ns.load(Relaxed)) >= MEMORY_CHECK_NS {
            last_check_ns.store(now, Relaxed);
            managed.memory.reattach_if_lost();
        }
    });
}
