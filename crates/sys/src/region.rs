//! A run of words that two processes share: [`crate::page`] for any length.

use crate::mapping::{Access, Mapping};
use crate::memfd;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// A mapped run of words, unmapped when dropped. A child process inherits it and shares it.
#[derive(Debug)]
pub struct SharedRegion(Mapping);

impl SharedRegion {
    /// `words` zeroed words, mapped for writing, and the memfd behind them. The size is sealed, the content not.
    ///
    /// # Errors
    /// InvalidInput for no words or too many; the error of memfd_create, ftruncate, the sealing or mmap.
    pub fn create(name: &str, words: usize) -> io::Result<(Self, OwnedFd)> {
        let (mapping, fd) = create(name, words)?;
        Ok((Self(mapping), fd))
    }

    /// Maps, for writing, a region that another process made.
    ///
    /// # Errors
    /// InvalidData if the file is not exactly `words` long or could be shrunk while it is mapped; EINVAL if it is no
    /// memfd; EPERM or EACCES if writing is sealed off.
    pub fn map(fd: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        Self::map_with(fd, words, Access::ReadWrite)
    }

    /// [`map`](Self::map) with a choice of access.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_with(fd: BorrowedFd<'_>, words: usize, access: Access) -> io::Result<Self> {
        Mapping::of_file(fd, words, access).map(Self)
    }

    /// `words` zeroed words without a file, shared with children only.
    ///
    /// # Errors
    /// InvalidInput for no words or too many; the error of mmap.
    pub fn anonymous(words: usize) -> io::Result<Self> {
        Mapping::anonymous(words).map(Self)
    }

    /// The words; as [`crate::page::SharedPage::words`].
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// A new memfd of `words` words, sealed in size, with a mapping for writing.
pub(crate) fn create(name: &str, words: usize) -> io::Result<(Mapping, OwnedFd)> {
    let file = File::from(memfd::create(name)?);
    file.set_len((words as u64).saturating_mul(size_of::<AtomicU64>() as u64))?;
    memfd::add_seals(file.as_fd(), libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    let mapping = Mapping::of_file(file.as_fd(), words, Access::ReadWrite)?;
    Ok((mapping, file.into()))
}
