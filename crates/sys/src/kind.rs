//! What a descriptor is that somebody else has sent.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kind of file behind a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A character device.
    Character {
        /// Its driver.
        major: u32,
        /// Which of the driver's devices.
        minor: u32,
    },
    /// A socket.
    Socket {
        /// AF_UNIX or another.
        domain: i32,
        /// SOCK_STREAM or another.
        kind: i32,
    },
    /// Something else.
    Other,
}

/// Finds out what a descriptor is. Does not ask the file system's server where there is one: it may be the sender's own, and
/// silent.
///
/// # Errors
/// What statx or getsockopt says; ENOSYS on kernels before 4.11.
pub fn of(fd: BorrowedFd<'_>) -> io::Result<Kind> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is a C string and `found` is writable.
    let done = unsafe {
        libc::syscall(
            libc::SYS_statx,
            fd.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_TYPE,
            found.as_mut_ptr(),
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed integers, filled in by the kernel.
    let found = unsafe { found.assume_init() };
    Ok(match u32::from(found.stx_mode) & libc::S_IFMT {
        libc::S_IFCHR => Kind::Character { major: found.stx_rdev_major, minor: found.stx_rdev_minor },
        libc::S_IFSOCK => Kind::Socket {
            domain: crate::socket::option(fd, libc::SO_DOMAIN)?,
            kind: crate::socket::option(fd, libc::SO_TYPE)?,
        },
        _ => Kind::Other,
    })
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character { major, minor } => write!(f, "a character device {major}:{minor}"),
            Self::Socket { domain, kind } => write!(f, "a socket (domain {domain}, type {kind})"),
            Self::Other => f.write_str("neither a character device nor a socket"),
        }
    }
}
