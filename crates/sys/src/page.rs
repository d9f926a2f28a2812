//! One page of 4096 bytes that two processes share.
//!
//! The owner makes it with [`SharedPage::create`]. If the other side may only read, the owner then calls
//! [`SharedPage::seal_future_write`] and sends the descriptor that [`SharedPage::reopen_read_only`] returns.

use crate::mapping::Mapping;
use crate::memfd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

pub use crate::mapping::Access;

/// Words of a page.
pub const WORDS: usize = 512;

/// A mapped page, unmapped when dropped. A child process inherits it and shares it.
#[derive(Debug)]
pub struct SharedPage(Mapping);

impl SharedPage {
    /// A zeroed page, mapped for writing, and the memfd behind it. The size is sealed, the content not.
    ///
    /// # Errors
    /// The error of memfd_create, ftruncate, the sealing or mmap; a NUL in `name`.
    pub fn create(name: &str) -> io::Result<(Self, OwnedFd)> {
        let (mapping, fd) = crate::region::create(name, WORDS)?;
        Ok((Self(mapping), fd))
    }

    /// Seals the page: no new writable mappings, no write calls, no change of size, no further seals. Existing writable
    /// mappings stay.
    ///
    /// # Errors
    /// EPERM if the file is sealed against seals, EINVAL if it is no memfd or the kernel is older than 5.1.
    pub fn seal_future_write(fd: &OwnedFd) -> io::Result<()> {
        let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        memfd::add_seals(fd.as_fd(), seals)
    }

    /// A second, read-only descriptor of the same file. Its receiver cannot write, seal or resize the file through it.
    ///
    /// # Errors
    /// The error of opening `/proc/self/fd`; without `/proc` it cannot be done.
    pub fn reopen_read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
        Ok(std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.into())
    }

    /// Maps a page that another process made.
    ///
    /// # Errors
    /// InvalidData if the file is not exactly one page or could be shrunk while it is mapped (an access behind its end
    /// would be SIGBUS); EINVAL if it is no memfd; EPERM or EACCES if the access is sealed off.
    pub fn map(fd: BorrowedFd<'_>, access: Access) -> io::Result<Self> {
        Mapping::of_file(fd, WORDS, access).map(Self)
    }

    /// A zeroed page without a file, shared with children only.
    ///
    /// # Errors
    /// The error of mmap.
    pub fn anonymous() -> io::Result<Self> {
        Mapping::anonymous(WORDS).map(Self)
    }

    /// The words of the page. Other processes may change any word at any time. Through a read-only mapping only relaxed
    /// loads are allowed (followed by an acquire fence where needed): a store raises SIGSEGV.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: every constructor maps exactly `WORDS` words, so the slice has the array's size and alignment; the
        // result borrows from `self`, as the slice does.
        unsafe { &*self.0.words().as_ptr().cast::<[AtomicU64; WORDS]>() }
    }
}
