//! The C functions that programs may call: `hook/include/sluice.h`.

mod preemption;

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;

use sluice_hook_core::hold_kernel::HoldRefusal;
use sluice_hook_core::outcome::Bypass;

use crate::copy_kernel;
use crate::counters::COUNTERS;
use crate::hold_kernel::{self, HoldError};
use crate::process;

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
    result_of(hold_kernel::hint(lead_us)) as c_int
}

/// Begins a request.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_request_begin() -> c_int {
    result_of(hold_kernel::begin_marked()) as c_int
}

/// Ends a request.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluice_request_end() -> c_int {
    result_of(hold_kernel::end_marked()) as c_int
}

fn result_of<T>(held: Result<T, HoldError>) -> CallResult {
    match held {
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
                HoldRefusal::LaunchWaits => CallResult::Preparing,
            },
        },
    }
}

/// Writes up to `capacity` counters of hold kernels and returns how many there are: launched, released by the host, planned for later,
/// lateness of the planned ones in nanoseconds (sum, then maximum), planned ones that were not launched, and those that ended by
/// themselves.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_holds(counters: *mut u64, capacity: usize) -> usize {
    // SAFETY: as the caller guarantees.
    unsafe { write_counters(&hold_kernel::counts(), counters, capacity) }
}

/// Writes up to `capacity` counters of copies and returns how many there are: made by a kernel, then those that a kernel was to make and that
/// were left to the driver, by reason: size, capture, no grant, stream, kernel not loaded, memory, launch refused. For tests and tools.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_copies(counters: *mut u64, capacity: usize) -> usize {
    // SAFETY: as the caller guarantees.
    unsafe { write_counters(&copy_kernel::counts(), counters, capacity) }
}

/// Writes up to `capacity` counters and returns how many there are: launches, allocations refused, grants, panics caught,
/// then bypassed calls by reason. For tests and tools.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_counters(counters: *mut u64, capacity: usize) -> usize {
    let launches: u64 = process::devices().map(|managed| managed.device.launches()).sum();
    let fixed = [&COUNTERS.refused, &COUNTERS.grants, &COUNTERS.panics].map(|counter| counter.load(Relaxed));
    let bypassed = Bypass::ALL.iter().map(|reason| COUNTERS.bypassed(*reason));
    let all: Vec<u64> = [launches].into_iter().chain(fixed).chain(bypassed).collect();
    // SAFETY: as the caller guarantees.
    unsafe { write_counters(&all, counters, capacity) }
}

/// # Safety
/// `counters` is null or writable for `capacity` numbers.
unsafe fn write_counters(all: &[u64], counters: *mut u64, capacity: usize) -> usize {
    if !counters.is_null() {
        // SAFETY: as the caller guarantees; the program's memory does not overlap the hook's.
        unsafe { counters.copy_from_nonoverlapping(all.as_ptr(), all.len().min(capacity)) };
    }
    all.len()
}
