//! Address space of this process that represents device memory. Pages are committed only when written.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) const PAGE: usize = 4096;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    len: usize,
}

impl Mapping {
    pub(crate) fn memory(len: usize) -> io::Result<Self> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Addresses without memory, a multiple of `alignment`, which is a power of two.
    pub(crate) fn addresses(len: usize, alignment: usize) -> io::Result<Self> {
        let alignment = alignment.max(PAGE);
        let wide = len.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let all = Self::map(wide, libc::PROT_NONE)?;
        let begin = all.address.next_multiple_of(alignment);
        let (before, after) = (begin - all.address, all.address + all.len - begin - len);
        let end = begin + len;
        let first = all.address;
        drop_parts(all, [(first, before), (end, after)]);
        Ok(Self { address: begin, len })
    }

    fn map(len: usize, protection: libc::c_int) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing mapping.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: address.expose_provenance(), len })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Maps a file to a part of these addresses; without a file, unmaps that part.
    pub(crate) fn back(&self, offset: usize, len: usize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (protection, flags, fd) = match file {
            Some(file) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        let address: *mut c_void = std::ptr::with_exposed_provenance_mut(self.address + offset);
        // SAFETY: the range lies within this mapping (checked above), so MAP_FIXED replaces only pages of this mapping.
        let mapped = unsafe { libc::mmap(address, len, protection, flags | libc::MAP_FIXED, fd, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Unmaps parts of a mapping instead of all of it.
fn drop_parts(whole: Mapping, parts: [(usize, usize); 2]) {
    let whole = std::mem::ManuallyDrop::new(whole);
    for (address, len) in parts.into_iter().filter(|(_, len)| *len > 0) {
        debug_assert!(address >= whole.address && address + len <= whole.address + whole.len);
        drop(Mapping { address, len });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let address: *mut c_void = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the mapping has no other owner, and all users of the memory have completed: frees wait for the GPU.
        unsafe { libc::munmap(address, self.len) };
    }
}

/// A memory file. It can be mapped at several addresses, and keeps its content while it is unmapped.
pub(crate) fn file(len: usize) -> io::Result<OwnedFd> {
    // SAFETY: a C string that outlives the call; the result is checked.
    let fd = unsafe { libc::memfd_create(c"cuda-sim-chunk".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a newly created descriptor without another owner.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    Ok(file.into())
}

/// Whether a program can write all of this memory; memory whose protection is unknown counts as writable.
pub(crate) fn is_writable(address: usize, len: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_protected = |line: &str| {
        let mut words = line.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let (begin, end) = (usize::from_str_radix(begin, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let inside = begin < address.saturating_add(len) && address < end;
        Some(inside && words.next()?.as_bytes().get(1) != Some(&b'w'))
    };
    !maps.lines().any(|line| is_protected(line) == Some(true))
}
