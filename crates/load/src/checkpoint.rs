//! Other processes, held at their next CUDA call from outside (driver 570 and later).

use std::ptr;

use sluice_driver_api::types::CUprocessState;

use crate::driver::{Driver, Error, check, function};

/// `CUcheckpointLockArgs`: a time limit in milliseconds, and nothing but zeroes behind it.
#[repr(C, align(8))]
struct LockArgs {
    timeout_ms: u32,
    reserved: [u32; 15],
}

/// Holds a process at its next CUDA call, once what it has submitted is done; it stays held until [`unlock`].
///
/// # Errors
/// Those of the driver: `ERROR_NOT_READY` (600) if the work took longer than `timeout_ms`, and then nothing is held;
/// `ERROR_OPERATING_SYSTEM` (304) without the right to do that to the process. A driver before 570 has no such function.
pub fn lock(driver: &Driver, pid: i32, timeout_ms: u32) -> Result<(), Error> {
    let lock = function!(driver, cuCheckpointProcessLock)?;
    let mut arguments = LockArgs { timeout_ms, reserved: [0; 15] };
    // SAFETY: the arguments are laid out as the driver's structure and outlive the call.
    check("cuCheckpointProcessLock", unsafe { lock(pid, (&raw mut arguments).cast()) })
}

/// Lets a held process go on.
///
/// # Errors
/// Those of the driver: the process is not held, or is no more.
pub fn unlock(driver: &Driver, pid: i32) -> Result<(), Error> {
    let unlock = function!(driver, cuCheckpointProcessUnlock)?;
    // SAFETY: the driver documents that the arguments may be absent.
    check("cuCheckpointProcessUnlock", unsafe { unlock(pid, ptr::null_mut()) })
}

/// Whether a process is held, by whomever.
///
/// # Errors
/// Those of the driver: the process does not use it, or is no more. A driver before 570 has no such function.
pub fn is_locked(driver: &Driver, pid: i32) -> Result<bool, Error> {
    /// CU_PROCESS_STATE_RUNNING.
    const RUNNING: CUprocessState = 0;
    let get = function!(driver, cuCheckpointProcessGetState)?;
    let mut state = RUNNING;
    // SAFETY: the pointer is to a local of the type that the driver writes.
    check("cuCheckpointProcessGetState", unsafe { get(pid, &raw mut state) })?;
    Ok(state != RUNNING)
}
