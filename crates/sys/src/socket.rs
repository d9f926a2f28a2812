//! Unix sockets: descriptors that travel with bytes, and the credentials of the peer.

mod fds;

pub use fds::{recv_with_fds, send_with_fds, try_send_with_fds};

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The most descriptors that travel with one message.
pub const MAX_FDS: usize = 9;

/// Linux 6.5; not in every libc's headers.
const SO_PEERPIDFD: i32 = 77;

/// Credentials of the peer when it connected, or made the socket pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id in our namespace; 0 if the process has none there.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// Credentials of the process that connected, as the kernel recorded them.
///
/// # Errors
/// The error of getsockopt: ENOTSOCK, or ENOTCONN-like refusals for a descriptor that is not a connected unix socket.
pub fn peer_credentials(sock: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let found: libc::ucred = option(sock, libc::SO_PEERCRED)?;
    Ok(PeerCredentials { pid: found.pid, uid: found.uid, gid: found.gid })
}

/// A descriptor of the process that connected, closed on exec, readable when the process ends.
///
/// Kernels before 6.5 do not provide one. There it is opened by process id, which another process may have by then. The
/// caller must compare `/proc` with the credentials *after* this call.
///
/// # Errors
/// The error of getsockopt or pidfd_open; ESRCH if the process is gone.
pub fn peer_pidfd(sock: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match option::<i32>(sock, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made this descriptor for us; no other code owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            crate::pidfd::open(peer_credentials(sock)?.pid)
        }
        Err(error) => Err(error),
    }
}

/// A socket option of a type for which every bit pattern is valid.
pub(crate) fn option<T: Copy>(sock: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `value` is writable for `len` bytes and `len` for one integer; the kernel writes no more than `len`.
    let done = unsafe {
        libc::getsockopt(sock.as_raw_fd(), libc::SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    match done {
        // SAFETY: zeroed, then partly overwritten, and only used with structs of integers.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}
