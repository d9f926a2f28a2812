//! Whether a process may speak for the clients that it names.

use std::os::fd::{AsFd, BorrowedFd};

use sluice_sys::pidfd::is_same_file;

use super::search::is_there;
use super::searcher::Process;
use super::{Unreachable, files};
use crate::Controls;

/// Whether all these clients were made over the open file behind `descriptor`, which somebody sent for them, and the process has that
/// file open itself. Who has only been told the handles, or was sent the file and passed it on, does not own them.
///
/// # Errors
/// [`Unreachable`]: it cannot be told.
pub fn is_its_own(
    whom: &Process<'_>,
    descriptor: BorrowedFd<'_>,
    clients: &[u32],
    simulated: bool,
) -> Result<bool, Unreachable> {
    let pid = whom.key.0;
    let failed = |why| Unreachable::Process { pid, why };
    let said = |why: crate::ControlError| Unreachable::Groups { pid, why: why.to_string() };
    let copy = descriptor.try_clone_to_owned().map_err(failed)?;
    let Ok(controls) = Controls::over(copy, simulated) else { return Ok(false) };
    for client in clients {
        if !is_there(&controls, *client).map_err(said)? {
            return Ok(false);
        }
    }
    for number in files::descriptors(pid, simulated).map_err(failed)? {
        if is_same_file(descriptor, pid, number) {
            // The number is this process's only while it lives.
            return Ok(!sluice_sys::pidfd::has_ended(whom.process.as_fd()));
        }
    }
    // Where the kernel does not compare files the driver knows its clients on each.
    for number in files::descriptors(pid, simulated).map_err(failed)? {
        let Some(copy) = files::copy(whom.process, number, simulated).map_err(failed)? else { continue };
        if let Some(client) = clients.first()
            && is_there(&copy.controls, *client).map_err(said)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
