//! Words that two processes share: one page of 4096 bytes, or a run of any length.
//!
//! The owner of a page makes it with [`SharedPage::create`]. If the other side may only read, the owner then calls
//! [`SharedPage::seal_future_write`] and sends the descriptor that [`SharedPage::reopen_read_only`] returns.

use crate::memfd;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Words of a page.
pub const WORDS: usize = 512;

/// A mapped page, unmapped when dropped. A child process inherits it and shares it.
#[derive(Debug)]
pub struct SharedPage(SharedRegion);

impl SharedPage {
    /// A zeroed page, mapped for writing, and the memfd behind it. The size is sealed, the content not.
    /// Errors: the error of memfd_create, ftruncate, the sealing or mmap; a NUL in `name`.
    pub fn create(name: &str) -> io::Result<(Self, OwnedFd)> {
        let (region, fd) = SharedRegion::create(name, WORDS)?;
        Ok((Self(region), fd))
    }

    /// Seals the page: no new writable mappings, no write calls, no change of size, no further seals. Existing writable
    /// mappings stay.
    /// Errors: EPERM if the file is sealed against seals, EINVAL if it is no memfd or the kernel is older than 5.1.
    pub fn seal_future_write(fd: &OwnedFd) -> io::Result<()> {
        let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        memfd::add_seals(fd.as_fd(), seals)
    }

    /// A second, read-only descriptor of the same file. Its receiver cannot write, seal or resize the file through it.
    /// Errors: the error of opening `/proc/self/fd`; without `/proc` it cannot be done.
    pub fn reopen_read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
        Ok(std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.into())
    }

    /// Maps a page that another process made.
    /// Errors: InvalidData if the file is not exactly one page or could be shrunk while it is mapped (an access behind
    /// its end would be SIGBUS); EINVAL if it is no memfd; EPERM or EACCES if the access is sealed off.
    pub fn map(fd: BorrowedFd<'_>, access: Access) -> io::Result<Self> {
        SharedRegion::map_with(fd, WORDS, access).map(Self)
    }

    /// A zeroed page without a file, shared with children only. Errors: the error of mmap.
    pub fn anonymous() -> io::Result<Self> {
        SharedRegion::anonymous(WORDS).map(Self)
    }

    /// The words of the page. Other processes may change any word at any time. Through a read-only mapping only relaxed
    /// loads are allowed (followed by an acquire fence where needed): a store raises SIGSEGV.
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: every constructor maps exactly `WORDS` words, so the slice has the array's size and alignment; the
        // result borrows from `self`, as the slice does.
        unsafe { &*self.0.words().as_ptr().cast::<[AtomicU64; WORDS]>() }
    }
}

/// What a mapping can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store raises SIGSEGV.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// A run of shared words: a MAP_SHARED mapping, unmapped when dropped. A child process inherits it and shares it.
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
pub struct SharedRegion {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only ever used as `&[AtomicU64]`.
unsafe impl Send for SharedRegion {}
// SAFETY: as above; atomics may be shared between threads.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// `words` zeroed words, mapped for writing, and the memfd behind them. The size is sealed, the content not.
    /// Errors: InvalidInput for no words or too many; the error of memfd_create, ftruncate, the sealing or mmap.
    pub fn create(name: &str, words: usize) -> io::Result<(Self, OwnedFd)> {
        let file = File::from(memfd::create(name)?);
        file.set_len((words as u64).saturating_mul(size_of::<AtomicU64>() as u64))?;
        memfd::add_seals(file.as_fd(), libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        let region = Self::map_with(file.as_fd(), words, Access::ReadWrite)?;
        Ok((region, file.into()))
    }

    /// Maps, for writing, a region that another process made.
    /// Errors: InvalidData if the file is not exactly `words` long or could be shrunk while it is mapped; EINVAL if it
    /// is no memfd; EPERM or EACCES if writing is sealed off.
    pub fn map(fd: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        Self::map_with(fd, words, Access::ReadWrite)
    }

    /// Maps, for writing, a region of any length that another process made.
    /// Errors: as [`Self::map`].
    pub fn map_whole(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let words = memfd::size(fd)? / size_of::<AtomicU64>() as u64;
        let words = usize::try_from(words).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Self::map(fd, words)
    }

    fn map_with(fd: BorrowedFd<'_>, words: usize, access: Access) -> io::Result<Self> {
        // The seal before the size: once it is there, the size found cannot become smaller.
        memfd::require_seals(fd, libc::F_SEAL_SHRINK)?;
        let (size, expected) = (memfd::size(fd)?, bytes(words)?);
        if size != expected as u64 {
            let what = format!("cannot map memfd: it has {size} bytes, expected {expected}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Self::new(words, access, libc::MAP_SHARED, fd.as_raw_fd())
    }

    /// `words` zeroed words without a file, shared with children only. Errors: as [`SharedRegion::create`].
    pub fn anonymous(words: usize) -> io::Result<Self> {
        Self::new(words, Access::ReadWrite, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
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

    /// The words; as [`SharedPage::words`].
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is aligned to a page and valid for `words` words until `self` is dropped, which the lifetime
        // of the result rules out; see the type's comment for changes by others.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Whether all pages of `bytes` bytes at `start` exist, that is, whether using them makes none. `false` beyond the end, and if the kernel
    /// does not tell.
    pub fn has_pages(&self, start: usize, bytes: usize) -> bool {
        const PAGE: usize = 4096;
        let first = start - start % PAGE;
        let Some(end) = start.checked_add(bytes).filter(|end| *end <= size_of_val(self.words())) else {
            return false;
        };
        let mut exists = vec![0_u8; (end - first).div_ceil(PAGE)];
        // SAFETY: the range is inside the mapping and begins with a page; there is a byte for each of its pages.
        let told = unsafe {
            libc::mincore(
                self.start.as_ptr().cast::<libc::c_void>().byte_add(first),
                end - first,
                exists.as_mut_ptr(),
            )
        };
        told == 0 && exists.iter().all(|page| page & 1 == 1)
    }
}

impl Drop for SharedRegion {
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
