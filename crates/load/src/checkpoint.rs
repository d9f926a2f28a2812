//! The driver's lock (driver 570 and later): it stops another process at its next CUDA call.

use std::ptr;

use sluice_driver_api::types::CUprocessState;

use crate::driver::{Driver, Error, check, function};

/// `CUcheckpointLockArgs`: a time limit in milliseconds, then zeroes.
#[repr(C, align(8))]
struct LockArgs {
    timeout_ms: u32,
    reserved: [u32; 15],
}

/// Locks a process: after its submitted work has ended, it waits in its next CUDA call until [`unlock`].
///
/// # Errors
/// The driver's: `ERROR_NOT_READY` (600) if the work took longer than `timeout_ms`, and then the process is not locked;
/// `ERROR_OPERATING_SYSTEM` (304) without the permission. A driver before 570 has no such function.
pub fn lock(driver: &Driver, pid: i32, timeout_ms: u32) -> Result<(), Error> {
    let lock = function!(driver, cuCheckpointProcessLock)?;
    let mut arguments = LockArgs { timeout_ms, reserved: [0; 15] };
    // SAFETY: the arguments are laid out as the driver's structure and outlive the call.
    check("cuCheckpointProcessLock", unsafe { lock(pid, (&raw mut arguments).cast()) })
}

/// Unlocks a process.
///
/// # Errors
/// The driver's: the process is not locked, or has ended.
pub fn unlock(driver: &Driver, pid: i32) -> Result<(), Error> {
    let unlock = function!(driver, cuCheckpointProcessUnlock)?;
    // SAFETY: the driver documents that the arguments may be absent.
    check("cuCheckpointProcessUnlock", unsafe { unlock(pid, ptr::null_mut()) })
}

/// Whether a process is locked, by any process.
///
/// # Errors
/// The driver's: the process does not use the driver, or has ended. A driver before 570 has no such function.
pub fn is_locked(driver: &Driver, pid: i32) -> Result<bool, Error> {
    /// CU_PROCESS_STATE_RUNNING.
    const RUNNING: CUprocessState = 0;
    let get = function!(driver, cuCheckpointProcessGetState)?;
    let mut state = RUNNING;
    // SAFETY: the pointer is to a local of the type that the driver writes.
    check("cuCheckpointProcessGetState", unsafe { get(pid, &raw mut state) })?;
    Ok(state != RUNNING)
}
