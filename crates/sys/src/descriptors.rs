//! The descriptors of another process, as /proc/PID/fd lists them.
//!
//! A listing makes one system call for some hundred numbers, and one more for the kind of each descriptor, relative to the opened folder.
//! It opens no file, so a file system whose server is the process cannot delay the caller.

use crate::file_kind::{self, Link};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Bytes of one reading of the folder: some 340 entries of 24 bytes.
const BUFFER: usize = 8192;
/// Offsets in `linux_dirent64`: the record's length, and the name.
const RECORD_LENGTH: usize = 16;
const NAME: usize = 19;
/// The folder's position of descriptor 0: `.` and `..` come first (`proc_readfd_common`).
const FIRST_POSITION: libc::off_t = 2;

/// The opened folder /proc/PID/fd of a process. Reading it fails when the process has ended, even if its id is reused.
#[derive(Debug)]
pub struct DescriptorFolder(OwnedFd);

/// How far a listing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// To the last descriptor.
    Completely,
    /// The next listing goes on at this number.
    Until(RawFd),
}

impl DescriptorFolder {
    /// Opens the folder of a process.
    /// Errors: `EACCES` without CAP_SYS_PTRACE, or for another user's process without CAP_DAC_READ_SEARCH.
    pub fn open(pid: i32) -> io::Result<Self> {
        let folder = std::fs::File::options().read(true).open(format!("/proc/{pid}/fd"))?;
        Ok(Self(folder.into()))
    }

    /// Calls `found` with up to `most` descriptors from number `from` on, in ascending order.
    /// Errors: the error of reading the folder.
    pub fn list(&self, from: RawFd, most: usize, mut found: impl FnMut(RawFd, Link)) -> io::Result<Listed> {
        let position = libc::off_t::from(from.max(0)) + FIRST_POSITION;
        // SAFETY: integers only.
        if unsafe { libc::lseek(self.0.as_raw_fd(), position, libc::SEEK_SET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut buffer = [0_u8; BUFFER];
        let mut listed = 0;
        loop {
            // SAFETY: the kernel writes at most `BUFFER` bytes into `buffer`.
            let read = unsafe {
                libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), buffer.as_mut_ptr(), BUFFER)
            };
            let Ok(read) = usize::try_from(read) else { return Err(io::Error::last_os_error()) };
            let mut records = buffer.get(..read).unwrap_or_default();
            if records.is_empty() {
                return Ok(Listed::Completely);
            }
            while let Some((name, rest)) = split_record(records) {
                records = rest;
                let Some(number) = name.to_str().ok().and_then(|name| name.parse::<RawFd>().ok()) else {
                    continue;
                };
                if listed == most {
                    return Ok(Listed::Until(number));
                }
                listed += 1;
                // A descriptor that was closed meanwhile leads nowhere.
                found(number, file_kind::link_in(&self.0, name).unwrap_or(Link::Other));
            }
        }
    }
}

/// The name of the first entry, and the other entries.
fn split_record(records: &[u8]) -> Option<(&CStr, &[u8])> {
    let length = records.get(RECORD_LENGTH..RECORD_LENGTH + 2)?.try_into().ok().map(u16::from_ne_bytes)?;
    let (record, rest) = records.split_at_checked(length.into())?;
    Some((CStr::from_bytes_until_nul(record.get(NAME..)?).ok()?, rest))
}

#[cfg(test)]
mod tests;
