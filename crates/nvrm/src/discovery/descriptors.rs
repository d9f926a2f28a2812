//! Copies of a process's descriptors of the control device, and the ownership check: whether clients that a process announces are
//! its own.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use super::DiscoveryError;
use super::client_search::{QueryBudget, client_exists};
use super::group_discovery::ScannedProcess;
use super::limits::{MAX_CHECKED_DESCRIPTORS, MAX_LISTED_DESCRIPTORS};
use crate::transport::{self, CONTROL_DEVICE};
use crate::{ControlError, Controls};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags, statx};
use sluice_sys::file_kind::{self, Kind};
use sluice_sys::pidfd::{copy_of, has_ended, is_same_file};

/// Bytes of one reading of a folder: some 340 entries of 24 bytes.
const LISTED_BYTES: usize = 8192;

/// A copy of a process's descriptor, and the controls over a second copy.
#[derive(Debug)]
pub(super) struct DescriptorCopy {
    pub(super) descriptor: OwnedFd,
    pub(super) controls: Controls,
}

/// Copies descriptor `number` of a process. `None` if the process has closed it or if it does not lead to the driver.
/// Errors: the error of pidfd_getfd, or of duplicating the copy.
pub(super) fn copy_descriptor(
    pidfd: BorrowedFd<'_>,
    number: RawFd,
    simulated: bool,
) -> io::Result<Option<DescriptorCopy>> {
    let descriptor = match copy_of(pidfd, number) {
        Ok(descriptor) => descriptor,
        // The process closed it after its descriptors were listed.
        Err(why) if why.raw_os_error() == Some(libc::EBADF) => return Ok(None),
        Err(why) => return Err(why),
    };
    // The process may have opened another file under this number since.
    if !file_kind::of(descriptor.as_fd()).is_ok_and(|kind| is_driver_kind(kind, simulated)) {
        return Ok(None);
    }
    let transport = transport::open_transport(descriptor.try_clone()?, simulated);
    Ok(transport.ok().map(|transport| DescriptorCopy { descriptor, controls: Controls::new(transport) }))
}

fn is_driver_kind(kind: Kind, simulated: bool) -> bool {
    match kind {
        Kind::Character { major, minor } => (major, minor) == CONTROL_DEVICE,
        Kind::Socket { domain: libc::AF_UNIX, kind: libc::SOCK_SEQPACKET } => simulated,
        _ => false,
    }
}

/// A part of a process's descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorPart {
    /// The numbers of those that may lead to the driver, in ascending order.
    pub driver: Vec<RawFd>,
    /// How many descriptors of any kind were listed.
    pub listed: usize,
    /// Where the next part begins; `None`: this was the last one.
    pub next: Option<RawFd>,
}

/// Lists up to `most` descriptors of a process from number `from` on. The control device is recognised by its device number, because a
/// container can give it any name; if `simulated`, every socket may lead to the driver.
///
/// No file is opened, and the file system of none is asked, so one whose server is the tenant cannot delay the caller.
/// Errors: the error of reading /proc/PID/fd: `EACCES` without CAP_SYS_PTRACE, or for another user's process without
/// CAP_DAC_READ_SEARCH.
pub fn driver_descriptors_from(
    pid: i32,
    simulated: bool,
    from: RawFd,
    most: usize,
) -> io::Result<DescriptorPart> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(format!("/proc/{pid}/fd"), flags, Mode::empty())?;
    // The folder's position of descriptor 0: `.` and `..` come first (`proc_readfd_common`).
    rustix::fs::seek(&folder, SeekFrom::Start(2 + u64::from(from.unsigned_abs())))?;
    let mut buffer = [MaybeUninit::uninit(); LISTED_BYTES];
    let mut entries = RawDir::new(&folder, &mut buffer);
    let mut part = DescriptorPart { driver: Vec::new(), listed: 0, next: None };
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().ok().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if part.listed == most {
            part.next = Some(number);
            break;
        }
        part.listed += 1;
        if may_lead_to_driver(&folder, name, simulated) {
            part.driver.push(number);
        }
    }
    Ok(part)
}

fn may_lead_to_driver(folder: &OwnedFd, name: &CStr, simulated: bool) -> bool {
    // A descriptor that was closed meanwhile leads nowhere.
    let Ok(found) = statx(folder, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) else { return false };
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::CharacterDevice => (found.stx_rdev_major, found.stx_rdev_minor) == CONTROL_DEVICE,
        FileType::Socket => simulated,
        _ => false,
    }
}

/// As [`driver_descriptors_from`], for all descriptors up to a bound.
/// Errors: the same.
pub fn driver_descriptors(pid: i32, simulated: bool) -> io::Result<Vec<RawFd>> {
    Ok(driver_descriptors_from(pid, simulated, 0, MAX_LISTED_DESCRIPTORS)?.driver)
}

/// Whether each of these clients was made over the open file behind the descriptor beside it, which the process sent with its announcement, and
/// the process itself has that file open. A query of the driver, a listed descriptor and a comparison take one of `queries` each.
///
/// A process that only knows the handles, or that passed on a file it does not keep open, does not own the clients.
/// Errors: [`DiscoveryError`]: it cannot be decided.
pub fn owns_clients(
    process: &ScannedProcess<'_>,
    announced: &[(OwnedFd, Vec<u32>)],
    simulated: bool,
    queries: &QueryBudget,
) -> Result<bool, DiscoveryError> {
    let pid = process.key.0;
    for (descriptor, clients) in announced {
        let copy = descriptor.try_clone().map_err(no_access(pid))?;
        let Ok(controls) = Controls::from_descriptor(copy, simulated) else { return Ok(false) };
        for client in clients {
            queries.spend(1);
            if !client_exists(&controls, *client).map_err(driver_error(pid))? {
                return Ok(false);
            }
        }
    }
    let part = driver_descriptors_from(pid, simulated, 0, MAX_CHECKED_DESCRIPTORS).map_err(no_access(pid))?;
    queries.spend(u32::try_from(part.listed).unwrap_or(u32::MAX));
    for (descriptor, clients) in announced {
        let client = clients.first().copied();
        if !has_open(process, (descriptor.as_fd(), client), &part.driver, simulated, queries)? {
            return if part.next.is_none() {
                Ok(false)
            } else {
                Err(DiscoveryError::TooManyDescriptors(pid))
            };
        }
    }
    // The process id may have been reused; it has not if the process is alive after the comparison.
    Ok(!has_ended(process.pidfd))
}

/// Whether a process has this open file, on which this client was made, under one of these numbers.
fn has_open(
    process: &ScannedProcess<'_>,
    (descriptor, client): (BorrowedFd<'_>, Option<u32>),
    numbers: &[RawFd],
    simulated: bool,
    queries: &QueryBudget,
) -> Result<bool, DiscoveryError> {
    let pid = process.key.0;
    let take_query = || queries.try_take().then_some(()).ok_or(DiscoveryError::TooManyDescriptors(pid));
    for number in numbers {
        take_query()?;
        if is_same_file(descriptor, pid, *number) {
            return Ok(true);
        }
    }
    // Without kcmp in the kernel, the driver decides: a client exists only over the file on which it was made.
    for number in numbers {
        take_query()?;
        let copy = copy_descriptor(process.pidfd, *number, simulated).map_err(no_access(pid))?;
        if let (Some(copy), Some(client)) = (copy, client)
            && client_exists(&copy.controls, client).map_err(driver_error(pid))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn no_access(pid: i32) -> impl Fn(io::Error) -> DiscoveryError {
    move |why| DiscoveryError::NoAccess { pid, why }
}

fn driver_error(pid: i32) -> impl Fn(ControlError) -> DiscoveryError {
    move |why| DiscoveryError::Groups { pid, why: why.to_string() }
}

#[cfg(test)]
mod tests;
