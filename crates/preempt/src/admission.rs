//! The submission gate of a queue: one word that says whether commands pass, and how many are passing.

use crate::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;

/// Open: a thread submits by itself. Shut: it has to ask the table.
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
    /// Steps admitted if the admission is open.
    ///
    /// Counting comes first: whoever shuts the admission either is seen here, or sees this thread admitted until its command
    /// has reached the driver. Both are changes of one word, so there is no third case.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Admitted<'_>> {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let admitted = Admitted(self);
        (before & CLOSED == 0).then_some(admitted)
    }

    /// Lets nobody in any more. Those admitted are not waited for.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Lets threads in again: what was submitted before this is before what they submit.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Whether a thread may be in the middle of a submission. Exact once the admission is shut, but for threads about to turn away.
    pub(crate) fn has_entrants(&self) -> bool {
        self.0.load(Ordering::Acquire) & !CLOSED != 0
    }
}
