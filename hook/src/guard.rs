//! What protects the program inside the hook: no panic leaves it, no cancellation ends a thread in it, and no absent pointer is read.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use sluice_hook_core::outcome::Bypass;

use crate::counters::{COUNTERS, count_bypass};

/// Runs the hook's own part of a call. A panic in it is counted, and the result is `otherwise`.
pub(crate) fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        COUNTERS.panics.fetch_add(1, Relaxed);
        count_bypass(Bypass::InternalError);
        otherwise
    })
}

/// What the driver has written for the program, if the program has passed an address for it. Some drivers accept null where the
/// documentation names no optional pointer (`cuMemGetInfo`).
///
/// # Safety
/// `result` is null or readable.
pub(crate) unsafe fn written<T: Copy>(result: *const T) -> Option<T> {
    // SAFETY: as the caller guarantees.
    unsafe { result.as_ref() }.copied()
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc.
const CANCEL_DISABLE: c_int = 1;

/// While this lives the thread cannot be cancelled. The hook's waits would be cancellation points where the driver has none, and a
/// cancellation inside this library ends the whole process. A cancellation inside a driver's call would leave the call counted for ever.
pub(crate) struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    pub(crate) fn begin() -> Self {
        let mut before = 0;
        // SAFETY: `before` is writable; the call concerns the calling thread only and is no system call.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that `begin` was given.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
