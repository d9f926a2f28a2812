//! Descriptors that stand for a process.

use crate::made_descriptor;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A descriptor that becomes readable when the process ends, closed on exec.
///
/// The process id may belong to another process already. With a socket to the process, use [`crate::socket::peer_pidfd`].
/// Errors: ESRCH if there is no such process, EINVAL for a number that cannot be one or that is a thread's.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the result of a system call that makes a descriptor.
    unsafe { made_descriptor(fd) }
}

/// A copy of the process's descriptor `number`: the same open file, closed on exec.
/// Errors: EBADF if the process has no such descriptor, ESRCH if it has ended, EPERM without the right to trace it,
/// ENOSYS before Linux 5.6.
pub fn copy_of(process: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    /// The same number on every architecture; not every libc names it.
    const PIDFD_GETFD: libc::c_long = 438;
    // SAFETY: pidfd_getfd takes three integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(PIDFD_GETFD, process.as_raw_fd(), number, 0) };
    // SAFETY: the result of a system call that makes a descriptor.
    unsafe { made_descriptor(fd) }
}

/// Whether our descriptor and descriptor `number` of a process are the same open file, not merely files of the same
/// device. Also false if this is unknown: without the right to trace the process, or where the kernel has no
/// kcmp.
pub fn is_same_file(descriptor: BorrowedFd<'_>, pid: i32, number: RawFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let [ours, theirs] = [descriptor.as_raw_fd(), number].map(libc::c_ulong::try_from);
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return false };
    let us = libc::c_long::from(std::process::id());
    // SAFETY: kcmp takes five integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, us, libc::c_long::from(pid), KCMP_FILE, ours, theirs) == 0 }
}

/// Whether the process has ended.
pub fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut look = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call; it does not wait.
    let ready = unsafe { libc::poll(&raw mut look, 1, 0) };
    ready == 1 && look.revents & libc::POLLIN != 0
}

#[cfg(test)]
mod tests;
