//! The C functions that programs may call, declared in `hook/include/sluice.h`.

mod preemption;

use std::ffi::{c_int, c_uint};

use sluice_hook_core::hint::NoHold;
use sluice_hook_core::outcome::Bypass;

use crate::hold::{self, Unheld};

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

/// Announces a request that will begin in `lead_us` microseconds.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_hint(lead_us: c_uint) -> c_int {
    let result = match hold::hint(lead_us) {
        Ok(_) => CallResult::Ok,
        Err(unheld) => match unheld {
            Unheld::NotCritical => CallResult::NotCritical,
            Unheld::Capturing => CallResult::Capturing,
            Unheld::Preparing => CallResult::Preparing,
            Unheld::Unable => CallResult::Unsupported,
            Unheld::Bypassed(reason) => match reason {
                Bypass::NotManaged | Bypass::ManagerGone | Bypass::NotAdmitted => CallResult::NotManaged,
                Bypass::NoContext => CallResult::NoContext,
                Bypass::Disabled | Bypass::Forked => CallResult::Disabled,
                _ => CallResult::Internal,
            },
            Unheld::Rules(rule) => match rule {
                NoHold::Off => CallResult::Disabled,
                NoHold::Alone => CallResult::Alone,
                NoHold::Running => CallResult::Running,
                NoHold::Begun | NoHold::NotWorthIt => CallResult::Begun,
                NoHold::TooFar => CallResult::Invalid,
            },
        },
    };
    result as c_int
}

/// Writes up to `capacity` counters of hold kernels. Returns how many counters exist: launched; released by the host;
/// planned for later; total lateness of those, in nanoseconds; largest lateness; planned in vain.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_holds(counters: *mut u64, capacity: usize) -> usize {
    let all = hold::counts();
    if !counters.is_null() {
        for (at, value) in all.into_iter().take(capacity).enumerate() {
            // SAFETY: `at` is below `capacity`, and the caller guarantees that much space.
            unsafe { counters.add(at).write(value) };
        }
    }
    all.len()
}
