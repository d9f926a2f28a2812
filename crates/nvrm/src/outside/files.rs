//! Copies of a process's descriptors of the control device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::Controls;
use crate::transport::{self, CONTROL_DEVICE};
use sluice_sys::kind::{self, Kind};
use sluice_sys::pidfd::copy_of;

/// What the link of a descriptor begins with that may be a simulator's.
const SOCKET: &str = "socket:";
/// Descriptors of one process that are looked at.
const MOST_LOOKED_AT: usize = 1 << 16;

/// An open file of a process: a copy of its descriptor, and the driver behind another.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) descriptor: OwnedFd,
    pub(super) controls: Controls,
}

/// A copy of a process's descriptor, if there is one of this number that leads to the driver.
///
/// # Errors
/// What pidfd_getfd says, or what it says that we have no descriptors left.
pub(super) fn copy(process: BorrowedFd<'_>, number: RawFd, simulated: bool) -> io::Result<Option<Copy>> {
    let descriptor = match copy_of(process, number) {
        Ok(descriptor) => descriptor,
        // It has been closed meanwhile.
        Err(why) if why.raw_os_error() == Some(libc::EBADF) => return Ok(None),
        Err(why) => return Err(why),
    };
    // What the number means may have changed since it was looked at.
    if !kind::of(descriptor.as_fd()).is_ok_and(|kind| may_lead(kind, simulated)) {
        return Ok(None);
    }
    let way = transport::adopt(descriptor.try_clone()?, simulated);
    Ok(way.ok().map(|way| Copy { descriptor, controls: Controls::new(way) }))
}

fn may_lead(kind: Kind, simulated: bool) -> bool {
    match kind {
        Kind::Character { major, minor } => (major, minor) == CONTROL_DEVICE,
        Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET } => simulated,
        _ => false,
    }
}

/// Numbers of a process's descriptors that may lead to the driver, in order: of the control device, whatever its name is where
/// the process lives, and if `simulated` of any socket. Nothing is opened and nobody else is asked.
///
/// # Errors
/// What reading /proc/PID/fd says: `EACCES` without CAP_SYS_PTRACE, or without CAP_DAC_READ_SEARCH for another user's process.
pub fn descriptors(pid: i32, simulated: bool) -> io::Result<Vec<RawFd>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MOST_LOOKED_AT) {
        let entry = entry?;
        if leads(&entry.path(), simulated) {
            numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn leads(link: &Path, simulated: bool) -> bool {
    if simulated && std::fs::read_link(link).is_ok_and(|to| to.to_string_lossy().starts_with(SOCKET)) {
        return true;
    }
    kind::device_at(link).is_some_and(|device| device == CONTROL_DEVICE)
}
