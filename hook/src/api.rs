//! The C functions that programs may call: `hook/include/sluice.h`.

mod preemption;

use std::ffi::{c_int, c_uint};

use sluice_hook_core::hold_kernel::HoldRefusal;
use sluice_hook_core::outcome::Bypass;

use crate::hold_kernel::{self, HoldError};

/// `sluice_result`: the result of a call. A number never gets a second meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum CallResult {
    Ok = 0,
    Invalid = 1,
    NotManaged = 2,
    NotCritical = 3,
    Alone = 4,
    Running = 5,
    Begun = 6,
    NoContext = 7,
    Capturing = 8,
    Preparing = 9,
    Unsupported = 10,
    Disabled = 11,
    Internal = 12,
    Timeout = 13,
    ContextSaveFailed = 14,
    InsufficientMemory = 15,
    GpuHung = 16,
    InvalidState = 17,
    NotEnabled = 18,
    AlreadyEnabled = 19,
    InvalidStream = 20,
}

/// Announces a request in `lead_us` microseconds.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_hint(lead_us: c_uint) -> c_int {
    let result = match hold_kernel::hint(lead_us) {
        Ok(_) => CallResult::Ok,
        Err(error) => match error {
            HoldError::NotCritical => CallResult::NotCritical,
            HoldError::Capturing => CallResult::Capturing,
            HoldError::Preparing => CallResult::Preparing,
            HoldError::Unable => CallResult::Unsupported,
            HoldError::Bypassed(reason) => match reason {
                Bypass::NotManaged | Bypass::ManagerGone | Bypass::NotAdmitted => CallResult::NotManaged,
                Bypass::NoContext => CallResult::NoContext,
                Bypass::Disabled | Bypass::Forked => CallResult::Disabled,
                _ => CallResult::Internal,
            },
            HoldError::Refused(rule) => match rule {
                HoldRefusal::Disabled => CallResult::Disabled,
                HoldRefusal::NoContenders => CallResult::Alone,
                HoldRefusal::Running => CallResult::Running,
                HoldRefusal::AlreadyBegun | HoldRefusal::NotWorthIt => CallResult::Begun,
                HoldRefusal::TooFarAhead => CallResult::Invalid,
            },
        },
    };
    result as c_int
}

/// Writes up to `capacity` counters of hold kernels and returns how many there are: launched, released by the host, planned for later,
/// lateness of the planned ones in nanoseconds (sum, then maximum), and planned ones that were not launched.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_holds(counters: *mut u64, capacity: usize) -> usize {
    let all = hold_kernel::counts();
    if !counters.is_null() {
        for (at, value) in all.into_iter().take(capacity).enumerate() {
            // SAFETY: `at` is below `capacity`, so the caller guarantees that it is writable.
            unsafe { counters.add(at).write(value) };
        }
    }
    all.len()
}
