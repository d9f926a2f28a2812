//! Safe functions over the system calls that need `unsafe` outside the hook: mappings, seals, descriptor passing,
//! pidfd, eventfd, futex, membarrier and the time-stamp counter. The crate is independent of Sluice.
//!
//! It also runs inside the hook, in a tenant's process. Therefore it never panics or logs, and does not allocate in
//! `clock`, `tsc` and `futex`, nor in `socket` beyond the list of received descriptors. Kernel interfaces newer than
//! glibc 2.17 are called by `syscall`, so that loading the hook needs no newer symbol.
//!
//! Main types: [`page::SharedPage`] and [`page::SharedRegion`] (shared memory), [`memfd`] (sealed messages),
//! [`socket`] (descriptors and credentials), [`pidfd`], [`futex`], [`membarrier`], [`symbols`], [`tsc::Calibration`].
//!
//! ```
//! use sluice_sys::page::{Access, SharedPage};
//! use std::os::fd::AsFd;
//! use std::sync::atomic::Ordering;
//!
//! let (owner, fd) = SharedPage::create("example")?;
//! SharedPage::seal_future_write(&fd)?;
//! let reader = SharedPage::map(fd.as_fd(), Access::ReadOnly)?;
//! owner.words()[7].store(42, Ordering::Relaxed);
//! assert_eq!(reader.words()[7].load(Ordering::Relaxed), 42);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod clock;
pub mod eventfd;
pub mod file_kind;
pub mod futex;
pub mod membarrier;
pub mod memfd;
pub mod page;
pub mod payload;
pub mod pidfd;
pub mod socket;
pub mod step_log;
pub mod symbols;
pub mod tsc;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The descriptor that a system call has returned, or its error.
///
/// # Safety
/// `result` comes from the calling thread's last system call, which makes a descriptor and closes it on exec.
unsafe fn made_descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for us; no other code owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
