//! Descriptors that stand for a process.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that becomes readable when the process ends, closed on exec.
///
/// The number may already belong to another process than the one meant; who has a socket to the process uses
/// [`crate::socket::peer_pidfd`].
///
/// # Errors
/// ESRCH if there is no such process, EINVAL for a number that cannot be one or that is a thread's.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
