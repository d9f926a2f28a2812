//! `cuCheckpointProcess*`: other processes, locked at their next driver call.

pub(crate) use super::graph::*;

use crate::border::{Ptr, Status};
use crate::state::driver::sockets;
use sluice_driver_api::types::*;
use sluice_sim::client::{self, LockFailure};
use std::io;
use std::path::PathBuf;

/// CU_PROCESS_STATE_RUNNING and CU_PROCESS_STATE_LOCKED.
const RUNNING: CUprocessState = 0;
const LOCKED: CUprocessState = 1;

fn status_of(failure: LockFailure) -> CUresult {
    match failure {
        LockFailure::NoSuchProcess => CUresult::ERROR_INVALID_VALUE,
        LockFailure::NotPermitted => CUresult::ERROR_OPERATING_SYSTEM,
        LockFailure::WrongState => CUresult::ERROR_ILLEGAL_STATE,
        LockFailure::NotInTime => CUresult::ERROR_NOT_READY,
    }
}

fn unavailable(_: io::Error) -> CUresult {
    CUresult::ERROR_DEVICE_UNAVAILABLE
}

fn used_by(pid: c_int) -> Result<Vec<PathBuf>, CUresult> {
    let mut used = Vec::new();
    for socket in sockets() {
        if client::is_locked(&socket, pid).map_err(unavailable)?.is_some() {
            used.push(socket);
        }
    }
    if used.is_empty() { Err(CUresult::ERROR_INVALID_VALUE) } else { Ok(used) }
}

pub(crate) fn cuCheckpointProcessLock(pid: c_int, args: Ptr<CUcheckpointLockArgs>) -> Status {
    let timeout_ms = if args.is_null() { 0 } else { args.cast::<u32>().read()? };
    let used = used_by(pid)?;
    for (index, socket) in used.iter().enumerate() {
        if let Err(failure) = client::lock(socket, pid, timeout_ms).map_err(unavailable)? {
            for socket in &used[..index] {
                let _ = client::unlock(socket, pid);
            }
            return Err(status_of(failure));
        }
    }
    Ok(())
}

pub(crate) fn cuCheckpointProcessUnlock(pid: c_int, _args: Ptr<CUcheckpointUnlockArgs>) -> Status {
    for socket in used_by(pid)? {
        client::unlock(&socket, pid).map_err(unavailable)?.map_err(status_of)?;
    }
    Ok(())
}

pub(crate) fn cuCheckpointProcessGetState(pid: c_int, state: Ptr<CUprocessState>) -> Status {
    let mut is_held = false;
    for socket in used_by(pid)? {
        is_held |= client::is_locked(&socket, pid).map_err(unavailable)? == Some(true);
    }
    state.write(if is_held { LOCKED } else { RUNNING })
}
