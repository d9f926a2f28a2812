//! Copies of a process's descriptors of the control device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::Controls;
use crate::transport::{self, CONTROL_DEVICE};
use sluice_sys::kind::{self, Kind};
use sluice_sys::pidfd::copy_of;

use super::MOST_FILES;

/// What the link of a descriptor begins with that may be a simulator's.
const SOCKET: &str = "socket:";
/// Descriptors of one process that are looked at.
const MOST_LOOKED_AT: usize = 1 << 16;

/// Ways to the driver over the descriptors that a process has now, each with another copy of its descriptor; one more than
/// [`MOST_FILES`] if there are too many.
pub(super) fn of(process: BorrowedFd<'_>, pid: i32, simulated: bool) -> io::Result<Vec<(OwnedFd, Controls)>> {
    let mut copies = Vec::new();
    for number in descriptors(pid, simulated)? {
        let copy = match copy_of(process, number) {
            Ok(copy) => copy,
            // It has been closed meanwhile.
            Err(why) if why.raw_os_error() == Some(libc::EBADF) => continue,
            Err(why) => return Err(why),
        };
        // What the number means may have changed since it was looked at.
        let is_one = kind::of(copy.as_fd()).is_ok_and(|kind| may_lead(kind, simulated));
        if is_one && let Ok(way) = transport::adopt(copy.try_clone()?, simulated) {
            copies.push((copy, Controls::new(way)));
        }
        if copies.len() > MOST_FILES {
            break;
        }
    }
    Ok(copies)
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
