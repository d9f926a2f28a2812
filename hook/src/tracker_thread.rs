//! The tracker's thread.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::gpu;
use crate::hold_kernel;
use crate::preempt;
use crate::process::{self, Managed};
use crate::thread;

/// How often memory is made known to a manager that was away.
const MEMORY_LOOK_NS: u64 = 250_000_000;

/// Starts the tracker of a device; `false` if the system gives no thread.
pub(crate) fn start(managed: &'static Managed) -> bool {
    thread::start(thread::SMALL_STACK, body, std::ptr::from_ref(managed).cast_mut().cast())
}

extern "C" fn body(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the argument is the device that `start` passed, which is never freed.
    let managed: &'static Managed = unsafe { &*argument.cast::<Managed>() };
    thread::settle_in(c"sluice-tracker");
    // A panic would leave everybody at the gate waiting: count it and go on, unless it comes again and again.
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

fn track(managed: &'static Managed) {
    gpu::relax_capture_mode();
    let looked = AtomicU64::new(0);
    managed.device.run_tracker(process::has_forked, || {
        hold_kernel::expire_and_count(managed);
        preempt::manager::look_after(managed);
        let now = HostClock.now_ns();
        if now.saturating_sub(looked.load(Relaxed)) >= MEMORY_LOOK_NS {
            looked.store(now, Relaxed);
            managed.memory.reattach_if_lost();
        }
    });
}
