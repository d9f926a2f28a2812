//! Admission of submitting threads to a queue: one word that says whether calls may go to the driver at once, and how
//! many are on their way.

use crate::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;

/// While open, a thread submits by itself. While closed, it has to ask the queue table.
#[derive(Debug)]
pub(crate) struct Admission(AtomicU64);

impl Default for Admission {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// A thread in the middle of a submission.
#[derive(Debug)]
pub(crate) struct Admitted<'a>(&'a Admission);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Admission {
    /// Enters if admission is open.
    ///
    /// The thread is counted first. A thread that closes admission therefore either is seen here, or sees this thread
    /// as an entrant until its command has reached the driver. Both change one word, so there is no third case.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Admitted<'_>> {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let admitted = Admitted(self);
        (before & CLOSED == 0).then_some(admitted)
    }

    /// Admits no further thread. Does not wait for the threads that were admitted.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Admits threads again. What was submitted before this call precedes what they submit.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Whether a thread may be in the middle of a submission. Exact once admission is closed, except for threads that
    /// are about to find it closed.
    pub(crate) fn has_entrants(&self) -> bool {
        self.0.load(Ordering::Acquire) & !CLOSED != 0
    }
}
