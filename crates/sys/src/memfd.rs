//! Anonymous files with seals: guarantees of one process to another about memory that they share.

use crate::made_descriptor;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The seals of a file whose content is final.
const FINAL: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A memfd that holds `bytes` and can never change again.
/// Errors: the error of memfd_create, write or the sealing; a NUL in `name`.
pub fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(create(name)?);
    file.write_all(bytes)?;
    add_seals(file.as_fd(), FINAL)?;
    Ok(file.into())
}

/// A memfd of this size without a page. Its holders can write to it, but neither resize nor seal it.
/// Errors: the error of memfd_create, ftruncate or the sealing; a NUL in `name`.
pub fn empty(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = File::from(create(name)?);
    file.set_len(bytes)?;
    add_seals(file.as_fd(), libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)?;
    Ok(file.into())
}

/// The whole content of a memfd that can no longer change, at most `max` bytes.
/// Errors: InvalidData if the file is not sealed against writing and resizing, or longer than `max`; EINVAL if it
/// cannot be sealed at all, that is, it is no memfd.
pub fn read_sealed(fd: BorrowedFd<'_>, max: usize) -> io::Result<Vec<u8>> {
    require_seals(fd, libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    let size = size(fd)?;
    let Some(len) = usize::try_from(size).ok().filter(|len| *len <= max) else {
        let what = format!("memfd has {size} bytes, expected at most {max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    };
    let mut bytes = vec![0; len];
    File::from(fd.try_clone_to_owned()?).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An empty memfd that can be sealed, is closed on exec and, where the kernel knows the flag (6.3), never executable.
pub(crate) fn create(name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let attempt = |flags: u32| {
        // SAFETY: `name` is a NUL-terminated string that outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
        // SAFETY: the result of a system call that makes a descriptor.
        unsafe { made_descriptor(fd) }
    };
    match attempt(flags | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => attempt(flags),
        result => result,
    }
}

/// Adds seals; they never come off.
pub(crate) fn add_seals(fd: BorrowedFd<'_>, seals: i32) -> io::Result<()> {
    // SAFETY: F_ADD_SEALS takes an integer and touches no memory of ours.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Refuses a file that lacks one of `seals`.
pub(crate) fn require_seals(fd: BorrowedFd<'_>, seals: i32) -> io::Result<()> {
    // SAFETY: F_GET_SEALS takes no argument and touches no memory of ours.
    let found = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    if found & seals != seals {
        let what = format!("memfd has seals 0x{found:x}, expected at least 0x{seals:x}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// Size in bytes.
pub(crate) fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(File::from(fd.try_clone_to_owned()?).metadata()?.len())
}
