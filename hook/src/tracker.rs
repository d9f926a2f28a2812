//! The tracker's thread: detached, all signals blocked, and with a small stack.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::gpu;
use crate::process::{self, Managed};

/// Enough for the driver's calls; threads of programs with a small stack limit must still start.
const STACK: usize = 256 * 1024;

/// How often memory is made known to a manager that was away.
const MEMORY_LOOK_NS: u64 = 250_000_000;

/// Starts the tracker of a device; `false` if the system gives no thread.
pub(crate) fn start(managed: &'static Managed) -> bool {
    let argument = std::ptr::from_ref(managed).cast_mut().cast::<c_void>();
    // SAFETY: the attributes are initialised before use and destroyed once; masks are valid for the calls; the argument
    // lives for ever. The signal mask is put back, and a thread inherits the one that its creator had.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread = 0;
        let created = libc::pthread_create(&raw mut thread, &raw const attributes, body, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        created == 0
    }
}

extern "C" fn body(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the argument is the device that `start` passed, which is never freed.
    let managed: &'static Managed = unsafe { &*argument.cast::<Managed>() };
    // SAFETY: both calls concern the calling thread only; the name is a C string of at most 15 bytes.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"sluice-tracker".as_ptr());
        // Deadlines are microseconds apart; the default slack of 50 would be most of a hand-over.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize);
    }
    // A panic would leave everybody at the gate waiting: count it and go on, unless it comes again and again.
    for _ in 0..100 {
        let ran = catch_unwind(AssertUnwindSafe(|| track(managed)));
        if ran.is_ok() {
            return std::ptr::null_mut();
        }
        process::COUNTERS.panics.fetch_add(1, Relaxed);
    }
    managed.device.stand_aside();
    std::ptr::null_mut()
}

fn track(managed: &Managed) {
    gpu::stand_aside_from_captures();
    let looked = AtomicU64::new(0);
    managed.device.run_tracker(process::has_forked, || {
        let now = HostClock.now_ns();
        if now.saturating_sub(looked.load(Relaxed)) >= MEMORY_LOOK_NS {
            looked.store(now, Relaxed);
            managed.memory.keep_attached();
        }
    });
}
