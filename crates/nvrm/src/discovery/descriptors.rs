//! Copies of a process's descriptors of the control device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use super::limits::MAX_LISTED_DESCRIPTORS;
use crate::Controls;
use crate::transport::{self, CONTROL_DEVICE};
use sluice_sys::file_kind::{self, Kind};
use sluice_sys::pidfd::copy_of;

/// Prefix of the link of a descriptor that may be a simulator's socket.
const SOCKET_LINK: &str = "socket:";

/// A copy of a process's descriptor, and the controls over a second copy.
#[derive(Debug)]
pub(super) struct DescriptorCopy {
    pub(super) descriptor: OwnedFd,
    pub(super) controls: Controls,
}

/// Copies descriptor `number` of a process. `None` if the process has closed it or if it does not lead to the driver.
///
/// # Errors
/// The error of pidfd_getfd, or of duplicating the copy.
pub(super) fn copy_descriptor(
    pidfd: BorrowedFd<'_>,
    number: RawFd,
    simulated: bool,
) -> io::Result<Option<DescriptorCopy>> {
    let descriptor = match copy_of(pidfd, number) {
        Ok(descriptor) => descriptor,
        // The process closed it after its descriptors were listed.
        Err(why) if why.raw_os_error() == Some(libc::EBADF) => return Ok(None),
        Err(why) => return Err(why),
    };
    // The process may have opened another file under this number since.
    if !file_kind::of(descriptor.as_fd()).is_ok_and(|kind| is_driver_kind(kind, simulated)) {
        return Ok(None);
    }
    let transport = transport::open_transport(descriptor.try_clone()?, simulated);
    Ok(transport.ok().map(|transport| DescriptorCopy { descriptor, controls: Controls::new(transport) }))
}

fn is_driver_kind(kind: Kind, simulated: bool) -> bool {
    match kind {
        Kind::Character { major, minor } => (major, minor) == CONTROL_DEVICE,
        Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET } => simulated,
        _ => false,
    }
}

/// Lists the numbers of a process's descriptors that may lead to the driver, in ascending order. The control device is recognised
/// by its device number, because a container can give it any name; if `simulated`, every socket is listed too.
///
/// Nothing is opened, so a file system whose server is the tenant cannot delay the caller.
///
/// # Errors
/// The error of reading /proc/PID/fd: `EACCES` without CAP_SYS_PTRACE, or for another user's process without
/// CAP_DAC_READ_SEARCH.
pub fn driver_descriptors(pid: i32, simulated: bool) -> io::Result<Vec<RawFd>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_LISTED_DESCRIPTORS) {
        let entry = entry?;
        if is_driver_link(&entry.path(), simulated) {
            numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn is_driver_link(link: &Path, simulated: bool) -> bool {
    if simulated && std::fs::read_link(link).is_ok_and(|to| to.to_string_lossy().starts_with(SOCKET_LINK)) {
        return true;
    }
    file_kind::device_at(link).is_some_and(|device| device == CONTROL_DEVICE)
}
