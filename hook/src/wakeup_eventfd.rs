//! The eventfd by which the hook wakes the manager. The program may close its descriptor and open an eventfd of its own under the same
//! number. So the hook marks its eventfd and checks the mark before each write. Before the descriptor is closed, the hook compares the kernel's
//! number of the eventfd, which takes a read from /proc.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use sluice_hook_core::lock;
use sluice_sys::eventfd;

use crate::log::above_standard;

/// A wake-up eventfd, or none. Closing it takes atomics only, so that the child of a fork can do it.
#[derive(Debug)]
pub(crate) struct WakeupEventfd {
    fd: AtomicI32,
    id: AtomicU64,
    mark: AtomicU32,
    /// Held while it is written or replaced: after a close between check and write the number may belong to another file.
    in_use: Mutex<()>,
}

/// Number of marks given: two wake-up eventfds of a process must differ.
static MARKS_GIVEN: AtomicU32 = AtomicU32::new(0);

impl WakeupEventfd {
    pub(crate) const fn none() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            id: AtomicU64::new(0),
            mark: AtomicU32::new(0),
            in_use: Mutex::new(()),
        }
    }

    /// Stores the wake-up eventfd of a new attachment in place of the previous one. One that cannot be identified or marked is not kept: without it
    /// the manager polls.
    pub(crate) fn replace(&self, fd: Option<&OwnedFd>) {
        let _in_use = lock(&self.in_use);
        self.close();
        let ours = fd.and_then(|fd| above_standard(fd.as_fd()));
        let mark = MARKS_GIVEN.fetch_add(1, Relaxed) % eventfd::MARKS;
        if let Some(ours) = ours
            && let Some(id) = eventfd::id(ours.as_fd())
            && eventfd::mark(ours.as_fd(), mark)
        {
            self.mark.store(mark, Release);
            self.id.store(id, Release);
            self.fd.store(ours.into_raw_fd(), Release);
        }
    }

    pub(crate) fn signal(&self) {
        let _in_use = lock(&self.in_use);
        let fd = self.fd.load(Acquire);
        // SAFETY: used for a query only, which fails if the number is not open.
        if fd >= 0 && eventfd::has_mark(unsafe { BorrowedFd::borrow_raw(fd) }, self.mark.load(Acquire)) {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes are readable, and the descriptor is an eventfd, which takes eight bytes.
            let _written = unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
        }
    }

    /// Closes it, unless the program has closed it and the number is another file's. Called in the child of a fork, and by [`Self::replace`].
    pub(crate) fn close(&self) {
        let fd = self.fd.load(Acquire);
        let ours = self.is_ours(fd);
        if self.fd.swap(-1, AcqRel) == fd && ours {
            // SAFETY: the descriptor is the hook's, and the swap took it away from all other threads.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    fn is_ours(&self, fd: RawFd) -> bool {
        // SAFETY: used for a query only, which fails if the number is not open.
        fd >= 0 && eventfd::id(unsafe { BorrowedFd::borrow_raw(fd) }) == Some(self.id.load(Acquire))
    }
}
