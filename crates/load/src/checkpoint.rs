//! The driver's lock (driver 570 and later): it stops another process at its next CUDA call.

use std::ptr;

use sluice_driver_api::types::CUprocessState;

use crate::driver::{Driver, Error, call};

/// `CUcheckpointLockArgs`: a time limit in milliseconds, then zeroes.
#[repr(C, align(8))]
struct LockArgs {
    timeout_ms: u32,
    reserved: [u32; 15],
}

/// Locks a process: after its submitted work has ended, it waits in its next CUDA call until [`unlock`].
/// The driver returns `ERROR_NOT_READY` (600) if the work took longer than `timeout_ms`, and then the process is not locked;
/// `ERROR_OPERATING_SYSTEM` (304) without the permission. A driver before 570 has no such function.
pub fn lock(driver: &Driver, pid: i32, timeout_ms: u32) -> Result<(), Error> {
    let mut arguments = LockArgs { timeout_ms, reserved: [0; 15] };
    // SAFETY: the arguments are laid out as the driver's structure and outlive the call.
    unsafe { call!(driver, cuCheckpointProcessLock(pid, (&raw mut arguments).cast())) }
}

/// Unlocks a process.
pub fn unlock(driver: &Driver, pid: i32) -> Result<(), Error> {
    // SAFETY: the driver documents that the arguments may be absent.
    unsafe { call!(driver, cuCheckpointProcessUnlock(pid, ptr::null_mut())) }
}

/// Whether a process is locked, by any process.
pub fn is_locked(driver: &Driver, pid: i32) -> Result<bool, Error> {
    /// CU_PROCESS_STATE_RUNNING.
    const RUNNING: CUprocessState = 0;
    let mut state = RUNNING;
    // SAFETY: the pointer is to a local of the type that the driver writes.
    unsafe { call!(driver, cuCheckpointProcessGetState(pid, &raw mut state))? };
    Ok(state != RUNNING)
}
