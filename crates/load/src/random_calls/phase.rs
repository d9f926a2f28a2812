//! The phase that all threads follow.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They make calls.
    Going,
    /// They wait, with their memory.
    Quiet,
    /// They wait, without memory that can be freed.
    Free,
}

/// The phase, and how often it was set.
#[derive(Debug)]
pub(crate) struct PhaseControl {
    current: Mutex<(u64, Phase)>,
    changed: Condvar,
}

impl PhaseControl {
    pub(crate) fn new(phase: Phase) -> Self {
        Self { current: Mutex::new((1, phase)), changed: Condvar::new() }
    }

    /// Sets the phase. It counts as a change even if the phase is the same.
    pub(crate) fn set(&self, phase: Phase) {
        let mut current = self.lock();
        *current = (current.0 + 1, phase);
        self.changed.notify_all();
    }

    /// The number of the last change, and the phase.
    pub(crate) fn current(&self) -> (u64, Phase) {
        *self.lock()
    }

    /// Waits until there is a change after this one.
    pub(crate) fn wait_for_change(&self, seen: u64) {
        let current = self.lock();
        let waited = self.changed.wait_while(current, |current| current.0 == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Phase)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
