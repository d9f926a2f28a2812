//! Copies of a process's descriptors of the control device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::path::PathBuf;

use crate::Controls;
use crate::transport::{self, CONTROL_DEVICE};
use sluice_sys::kind::{self, Kind};
use sluice_sys::pidfd::copy_of;

/// What links of descriptors that are worth a copy begin with.
const DEVICE: &str = "/dev/nvidia";
const SOCKET: &str = "socket:";

/// The most descriptors of the control device that a process may have: libcuda opens a handful, and each copy is one of ours.
const MANY: usize = 64;

/// Ways to the driver over the descriptors that a process has now.
///
/// # Errors
/// What the kernel says of the process, and InvalidData if it has too many of them.
pub(super) fn of(process: BorrowedFd<'_>, pid: i32, simulated: bool) -> io::Result<Vec<Controls>> {
    let mut copies = Vec::new();
    for number in candidates(pid, simulated)? {
        let copy = match copy_of(process, number) {
            Ok(copy) => copy,
            // It has been closed meanwhile.
            Err(why) if why.raw_os_error() == Some(libc::EBADF) => continue,
            Err(why) => return Err(why),
        };
        let is_one = match kind::of(copy.as_fd()) {
            Ok(Kind::Character { major, minor }) => (major, minor) == CONTROL_DEVICE,
            Ok(Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET }) => simulated,
            _ => false,
        };
        if is_one && let Ok(way) = transport::adopt(copy, simulated) {
            if copies.len() == MANY {
                let why = format!("it has more than {MANY} of the NVIDIA control device");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            copies.push(Controls::new(way));
        }
    }
    Ok(copies)
}

/// Numbers of descriptors that may lead to the driver: copying one that does not would do no harm, but a process may have
/// many thousands.
fn candidates(pid: i32, simulated: bool) -> io::Result<Vec<RawFd>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        let link = link.to_string_lossy();
        if link.starts_with(DEVICE) || (simulated && link.starts_with(SOCKET)) {
            numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}
