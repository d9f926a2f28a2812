//! The log file, if one is configured. Only rare events are logged, never a launch.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::descriptor::Descriptor;

/// Opens the file for appending, with a descriptor away from the program's.
pub(crate) fn open(path: &Path) -> Option<Descriptor> {
    let file = OpenOptions::new().append(true).create(true).open(path).ok()?;
    let kept = Descriptor::none();
    kept.set(above_standard(file.as_fd())?);
    Some(kept)
}

/// Writes one line. A failure is ignored. A process with a limit of the size of files (RLIMIT_FSIZE) logs nothing: a write beyond it
/// raises SIGXFSZ in the program, and other processes may write to the same file.
pub(crate) fn line(file: Option<&Descriptor>, text: std::fmt::Arguments<'_>) {
    // If the program has closed the file, its number may belong to one of the hook's connections.
    if let Some(file) = file.filter(|file| file.is_ours() && sluice_sys::payload::may_write(u64::MAX)) {
        // SAFETY: open, as has just been seen, and not closed by this value.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(file.raw()) });
        let ns = sluice_sys::clock::monotonic_ns();
        let line =
            format!("{}.{:06} {} {text}\n", ns / 1_000_000_000, ns / 1000 % 1_000_000, std::process::id());
        let _written = file.write_all(line.as_bytes());
    }
}

/// A copy of a descriptor that is none of 0-2 and closed on exec. It has a high number if possible, because programs close low numbers or
/// rely on which number comes next.
pub(crate) fn above_standard(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    [200, 3].into_iter().find_map(|least| {
        // SAFETY: duplicating a descriptor that is borrowed, and so open.
        let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
        // SAFETY: the descriptor was made just above and has no other owner.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
    })
}
