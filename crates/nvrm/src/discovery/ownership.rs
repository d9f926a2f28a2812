//! The ownership check: whether clients that a process announces are its own.

use std::os::fd::{AsFd, BorrowedFd};

use sluice_sys::pidfd::is_same_file;

use super::client_search::client_exists;
use super::group_discovery::ScannedProcess;
use super::{DiscoveryError, descriptors};
use crate::Controls;

/// Whether all these clients were made over the open file behind `descriptor`, which the process sent with its announcement, and the
/// process itself has that file open.
///
/// A process that only knows the handles, or that passed on a file it does not keep open, does not own the clients.
///
/// # Errors
/// [`DiscoveryError`]: it cannot be decided.
pub fn owns_clients(
    process: &ScannedProcess<'_>,
    descriptor: BorrowedFd<'_>,
    clients: &[u32],
    simulated: bool,
) -> Result<bool, DiscoveryError> {
    let pid = process.key.0;
    let no_access = |why| DiscoveryError::NoAccess { pid, why };
    let driver_error = |why: crate::ControlError| DiscoveryError::Groups { pid, why: why.to_string() };
    let copy = descriptor.try_clone_to_owned().map_err(no_access)?;
    let Ok(controls) = Controls::from_descriptor(copy, simulated) else { return Ok(false) };
    for client in clients {
        if !client_exists(&controls, *client).map_err(driver_error)? {
            return Ok(false);
        }
    }
    for number in descriptors::driver_descriptors(pid, simulated).map_err(no_access)? {
        if is_same_file(descriptor, pid, number) {
            // The process id may have been reused; it has not if the process is alive after the comparison.
            return Ok(!sluice_sys::pidfd::has_ended(process.pidfd.as_fd()));
        }
    }
    // Without kcmp in the kernel, the driver decides: a client exists only over the file on which it was made.
    for number in descriptors::driver_descriptors(pid, simulated).map_err(no_access)? {
        let copy = descriptors::copy_descriptor(process.pidfd, number, simulated).map_err(no_access)?;
        if let (Some(copy), Some(client)) = (copy, clients.first())
            && client_exists(&copy.controls, *client).map_err(driver_error)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
