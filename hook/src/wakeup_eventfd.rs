//! The eventfd that the manager listens to. It lies among the descriptors of a stranger's process, which may close it and open an
//! eventfd of its own under the same number. So it is marked, and a look at the mark comes before each ring; where that cannot be, and before
//! it is closed, it is known by the kernel's number of it, which takes a look into /proc.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

use sluice_sys::eventfd;

use crate::log::above_standard;

/// A doorbell, or none. Closing it takes atomics only, so that the child of a fork can.
#[derive(Debug)]
pub(crate) struct WakeupEventfd {
    fd: AtomicI32,
    id: AtomicU64,
    /// What it is marked with; [`UNMARKED`] if that was refused.
    mark: AtomicU32,
    /// Held while it is rung or hung: one that is closed between the look and the write may be somebody else's by then.
    in_use: Mutex<()>,
}

const UNMARKED: u32 = u32::MAX;

/// Marks given so far: two doorbells of a process are not to be taken for each other.
static MARKS_GIVEN: AtomicU32 = AtomicU32::new(0);

impl WakeupEventfd {
    pub(crate) const fn none() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            id: AtomicU64::new(0),
            mark: AtomicU32::new(UNMARKED),
            in_use: Mutex::new(()),
        }
    }

    /// Takes the doorbell of a new attachment, in place of the one before. One that cannot be told from others is not kept:
    /// without a doorbell the manager looks from time to time.
    pub(crate) fn replace(&self, fd: Option<&OwnedFd>) {
        let _in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        self.close();
        let ours = fd.and_then(|fd| above_standard(fd.as_fd()));
        if let Some(ours) = ours
            && let Some(id) = eventfd::id(ours.as_fd())
        {
            let mark = MARKS_GIVEN.fetch_add(1, Relaxed) % eventfd::MARKS;
            self.mark.store(if eventfd::mark(ours.as_fd(), mark) { mark } else { UNMARKED }, Release);
            self.id.store(id, Release);
            self.fd.store(ours.into_raw_fd(), Release);
        }
    }

    /// Rings it.
    pub(crate) fn signal(&self) {
        let _in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = self.fd.load(Acquire);
        if self.has_our_mark(fd) {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes are readable, and the descriptor is an eventfd that wants them.
            let _written = unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
        }
    }

    /// Closes it, unless somebody else has done so and the number is another's. In the child of a fork, and by [`Self::hang`].
    pub(crate) fn close(&self) {
        let fd = self.fd.load(Acquire);
        let ours = self.is_ours(fd);
        if self.fd.swap(-1, AcqRel) == fd && ours {
            // SAFETY: the descriptor is ours, and the swap took it away from everybody else.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    fn has_our_mark(&self, fd: RawFd) -> bool {
        match self.mark.load(Acquire) {
            UNMARKED => self.is_ours(fd),
            // SAFETY: only looked at, which fails if nobody has it open.
            mark => fd >= 0 && eventfd::has_mark(unsafe { BorrowedFd::borrow_raw(fd) }, mark),
        }
    }

    fn is_ours(&self, fd: RawFd) -> bool {
        // SAFETY: only looked at, which fails if nobody has it open.
        fd >= 0 && eventfd::id(unsafe { BorrowedFd::borrow_raw(fd) }) == Some(self.id.load(Acquire))
    }
}
