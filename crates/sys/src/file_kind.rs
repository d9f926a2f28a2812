//! The kind of a descriptor that another process has sent or may have closed.

use std::ffi::CStr;
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

/// Reads the kind of a descriptor. Does not query the server of a network or FUSE file system, which may belong to the
/// sender and never answer. (Without statx, the server is queried.)
/// Errors: the error of statx, fstat or getsockopt.
pub fn of(fd: BorrowedFd<'_>) -> io::Result<Kind> {
    let found = stat(fd)?;
    Ok(match found.mode & libc::S_IFMT {
        libc::S_IFCHR => Kind::Character { major: found.device.0, minor: found.device.1 },
        libc::S_IFSOCK => Kind::Socket {
            domain: crate::socket::option(fd, libc::SO_DOMAIN)?,
            kind: crate::socket::option(fd, libc::SO_TYPE)?,
        },
        _ => Kind::Other,
    })
}

/// Identity of a file: the file system's device and the inode number. Copies of a descriptor have one identity; some
/// special files (eventfds) share one. Async-signal-safe: allowed in the child of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The device of the file system.
    pub device: u64,
    /// The inode's number there.
    pub inode: u64,
}

/// The identity of the file behind a descriptor.
/// Errors: as [`of`].
pub fn identity(fd: BorrowedFd<'_>) -> io::Result<Identity> {
    stat(fd).map(|found| found.identity)
}

struct Found {
    mode: u32,
    identity: Identity,
    /// (major, minor) of a device.
    device: (u32, u32),
}

/// The kernel's facts about a path below the descriptor `folder`. Does not query the server of the file system.
fn statx(folder: i32, path: &CStr, flags: i32, mask: u32) -> io::Result<libc::statx> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is a C string and `found` is writable.
    let done =
        unsafe { libc::syscall(libc::SYS_statx, folder, path.as_ptr(), flags, mask, found.as_mut_ptr()) };
    match done {
        // SAFETY: zeroed integers, filled in by the kernel.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stat(fd: BorrowedFd<'_>) -> io::Result<Found> {
    let found = match statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH, libc::STATX_TYPE | libc::STATX_INO) {
        // Kernels before 4.11, and sandboxes that do not know statx.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            return stat_without_statx(fd);
        }
        found => found?,
    };
    let device = (found.stx_rdev_major, found.stx_rdev_minor);
    let of_system = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    let identity = Identity { device: of_system, inode: found.stx_ino };
    Ok(Found { mode: u32::from(found.stx_mode), identity, device })
}

fn stat_without_statx(fd: BorrowedFd<'_>) -> io::Result<Found> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `found` is writable; the kernel's structure is libc's.
    if unsafe { libc::syscall(libc::SYS_fstat, fd.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed integers, filled in by the kernel.
    let found = unsafe { found.assume_init() };
    let device = (libc::major(found.st_rdev), libc::minor(found.st_rdev));
    let identity = Identity { device: found.st_dev, inode: found.st_ino };
    Ok(Found { mode: found.st_mode, identity, device })
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

#[cfg(test)]
mod tests;
