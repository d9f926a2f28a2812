//! Count of the program's retains of an object that ends with its last release.
//!
//! The object's owner may count more retains than the hook saw, never fewer. So if another seen retain is left, a release is certainly
//! not the last.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Retains that were seen and not released. The retain of a release stops counting just before the release is made.
#[derive(Debug, Default)]
pub struct RetainCount(Mutex<u32>);

impl RetainCount {
    /// No retain seen.
    pub const fn new() -> Self {
        Self(Mutex::new(0))
    }

    /// Counts a retain.
    pub fn retained(&self) {
        let mut seen = self.seen();
        *seen = seen.saturating_add(1);
    }

    /// Makes a release if another retain is left. Otherwise it may be the last and is returned for the caller to make.
    pub fn release<R, F: FnOnce() -> R>(&self, make: F) -> Result<R, F> {
        let mut seen = self.seen();
        *seen = seen.saturating_sub(1);
        // With the lock held: a release that may be the last must not overtake this one, which would then be the last.
        if *seen > 0 { Ok(make()) } else { Err(make) }
    }

    /// Forgets all retains.
    pub fn forget(&self) {
        *self.seen() = 0;
    }

    fn seen(&self) -> MutexGuard<'_, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a release is certainly not the last.
    fn is_certain(retains: &RetainCount) -> bool {
        retains.release(|| ()).is_ok()
    }

    #[test]
    fn release_is_made_only_if_another_retain_is_left() {
        let retains = RetainCount::new();
        (0..3).for_each(|_| retains.retained());
        assert_eq!([(); 4].map(|()| is_certain(&retains)), [true, true, false, false]);
        retains.retained();
        assert!(!is_certain(&retains), "the unseen release does not count later");
    }

    #[test]
    fn after_a_reset_nothing_is_certain() {
        let retains = RetainCount::new();
        (0..3).for_each(|_| retains.retained());
        retains.forget();
        assert!(!is_certain(&retains));
    }

    #[test]
    fn possibly_last_release_waits_for_a_release_in_progress() {
        let retains = RetainCount::new();
        (0..2).for_each(|_| retains.retained());
        let others_wait = retains.release(|| retains.0.try_lock().is_err());
        assert!(others_wait.is_ok_and(|wait| wait));
    }
}
