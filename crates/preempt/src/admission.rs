//! The submission gate of a queue: one word that says whether commands pass, and how many are passing.

use crate::sync::{AtomicU64, Ordering};

const SHUT: u64 = 1 << 63;

/// Open: a thread submits by itself. Shut: it has to ask the book.
#[derive(Debug)]
pub(crate) struct Door(AtomicU64);

impl Default for Door {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// A thread in the middle of a submission.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Door);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Door {
    /// Steps inside if the door is open.
    ///
    /// Counting comes first: whoever shuts the door either is seen here, or sees this thread inside until its command
    /// has reached the driver. Both are changes of one word, so there is no third case.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let inside = Inside(self);
        (before & SHUT == 0).then_some(inside)
    }

    /// Lets nobody in any more. Those inside are not waited for.
    pub(crate) fn shut(&self) {
        self.0.fetch_or(SHUT, Ordering::AcqRel);
    }

    /// Lets threads in again: what was submitted before this is before what they submit.
    pub(crate) fn open(&self) {
        self.0.fetch_and(!SHUT, Ordering::AcqRel);
    }

    /// Whether a thread may be in the middle of a submission. Exact once the door is shut, but for threads about to turn away.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.load(Ordering::Acquire) & !SHUT != 0
    }
}
