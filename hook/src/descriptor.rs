//! A descriptor of the hook in another program's process. Programs close descriptors that they have not opened, and then open others under
//! the same number.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

use sluice_sys::file_kind::Identity;

/// A descriptor, or none. Only atomics, so that the child of a fork can close it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: AtomicI32,
    /// The file for which it was opened; both are 0 if the system does not tell.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Descriptor {
    pub(crate) const fn none() -> Self {
        Self { fd: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Takes ownership of a descriptor, and closes the previous one.
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

    /// Whether the number still refers to the file for which it was opened.
    pub(crate) fn is_ours(&self) -> bool {
        let fd = self.raw();
        let opened = Identity { device: self.device.load(Acquire), inode: self.inode.load(Acquire) };
        // SAFETY: used for a query only, which fails if the number is not open.
        fd >= 0 && (opened == UNKNOWN || identity(unsafe { BorrowedFd::borrow_raw(fd) }) == Some(opened))
    }

    /// Its number, if that still refers to the file for which it was opened.
    pub(crate) fn checked(&self) -> Option<RawFd> {
        self.is_ours().then(|| self.raw())
    }

    /// Closes it, unless the program has closed it and the number now belongs to another file.
    pub(crate) fn close(&self) {
        let ours = self.is_ours();
        let fd = self.fd.swap(-1, AcqRel);
        if fd >= 0 && ours {
            // SAFETY: the descriptor is the hook's, and the swap took it away from all other threads.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Shuts a socket's connection down for all copies of the descriptor, which stay open.
    pub(crate) fn shut_down(&self) {
        if self.is_ours() {
            // SAFETY: harmless on any descriptor.
            let _ended = unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
    }
}

/// The identity where the system does not tell one.
const UNKNOWN: Identity = Identity { device: 0, inode: 0 };

fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    sluice_sys::file_kind::identity(fd).ok()
}
