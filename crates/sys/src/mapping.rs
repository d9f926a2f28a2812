//! One shared mapping of whole 64-bit words: the mechanism under [`crate::page`] and [`crate::region`].

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What a mapping can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store raises SIGSEGV.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// A MAP_SHARED mapping, unmapped when dropped.
///
/// Why handing it out as `&[AtomicU64]` is sound:
/// * It exists, is aligned to a page and is `words` long until `self` is dropped: the pages come from an anonymous
///   mapping, or from a file whose size is sealed against shrinking, so that an access can never lie behind the end of
///   the file (SIGBUS). Only `drop` unmaps it; the address is private to this struct.
/// * Every bit pattern is a valid `AtomicU64`, so the stores of other processes cannot break an invariant of the type.
/// * Other processes change it at any time: the only references that exist are to atomics (`UnsafeCell` inside), which
///   allow that. Rust's memory model extends to them as to threads, as both use the same coherent memory. A process
///   that writes with plain stores can harm itself; here, it produces values that a racing atomic store might have.
/// * Through a read-only mapping only relaxed loads are guaranteed to work. A store there does not corrupt anything: it
///   is stopped by the MMU. Callers keep to loads; `Access` says which mapping they have.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only ever used as `&[AtomicU64]`.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics may be shared between threads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory that is shared with children of this process.
    pub(crate) fn anonymous(words: usize) -> io::Result<Self> {
        Self::new(words, Access::ReadWrite, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// The whole of a memfd that is exactly `words` long and can no longer shrink.
    pub(crate) fn of_file(fd: BorrowedFd<'_>, words: usize, access: Access) -> io::Result<Self> {
        // The seal before the size: once it is there, the size found cannot become smaller.
        crate::memfd::require_seals(fd, libc::F_SEAL_SHRINK)?;
        let (size, expected) = (crate::memfd::size(fd)?, bytes(words)?);
        if size != expected as u64 {
            let what = format!("cannot map memfd: it has {size} bytes, expected {expected}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Self::new(words, access, libc::MAP_SHARED, fd.as_raw_fd())
    }

    fn new(words: usize, access: Access, flags: i32, fd: i32) -> io::Result<Self> {
        let protection = match access {
            Access::ReadOnly => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: without MAP_FIXED the kernel chooses an address that nothing else uses, so no memory of ours changes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes(words)?, protection, flags, fd, 0) };
        match NonNull::new(start.cast::<AtomicU64>()) {
            Some(mapped) if start != libc::MAP_FAILED => Ok(Self { start: mapped, words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is aligned to a page and valid for `words` words until `self` is dropped, which the lifetime
        // of the result rules out; see the type's comment for changes by others.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `new`, is unmapped nowhere else, and no reference into it outlives `self`.
        // The length did not overflow when the range was mapped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// Length in bytes; zero words cannot be mapped.
fn bytes(words: usize) -> io::Result<usize> {
    words
        .checked_mul(size_of::<AtomicU64>())
        .filter(|bytes| (1..=isize::MAX as usize).contains(bytes))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("cannot map {words} words")))
}
