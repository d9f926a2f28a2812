//! A descriptor of ours in a stranger's process: programs close descriptors that they have not opened, and open others under the
//! same number.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

use sluice_sys::kind::Identity;

/// A descriptor, or none. Only atomics, so that the child of a fork can close it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: AtomicI32,
    /// The file that it was opened for; both are 0 where that cannot be asked.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Descriptor {
    pub(crate) const fn none() -> Self {
        Self { fd: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Takes a descriptor over, in place of the one that there is.
    pub(crate) fn set(&self, fd: OwnedFd) {
        self.close();
        let Identity { device, inode } = identity(fd.as_fd()).unwrap_or(UNKNOWN);
        self.device.store(device, Release);
        self.inode.store(inode, Release);
        self.fd.store(fd.into_raw_fd(), Release);
    }

    /// Its number; negative if there is none.
    pub(crate) fn raw(&self) -> RawFd {
        self.fd.load(Acquire)
    }

    /// Whether the number still leads to the file that it was opened for.
    pub(crate) fn is_ours(&self) -> bool {
        let fd = self.raw();
        let opened = Identity { device: self.device.load(Acquire), inode: self.inode.load(Acquire) };
        // SAFETY: only looked at, which fails if nobody has it open.
        fd >= 0 && (opened == UNKNOWN || identity(unsafe { BorrowedFd::borrow_raw(fd) }) == Some(opened))
    }

    /// Its number, if that still leads to the file that it was opened for.
    pub(crate) fn checked(&self) -> Option<RawFd> {
        self.is_ours().then(|| self.raw())
    }

    /// Closes it, unless somebody else has done so and the number is another's.
    pub(crate) fn close(&self) {
        let ours = self.is_ours();
        let fd = self.fd.swap(-1, AcqRel);
        if fd >= 0 && ours {
            // SAFETY: the descriptor is ours, and the swap took it away from everybody else.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Ends the connection of a socket for everybody who has a copy of it, and closes it.
    pub(crate) fn shut_down(&self) {
        if self.is_ours() {
            // SAFETY: harmless on any descriptor.
            let _ended = unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
        }
        self.close();
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where the system does not tell.
const UNKNOWN: Identity = Identity { device: 0, inode: 0 };

fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    sluice_sys::kind::identity(fd).ok()
}
