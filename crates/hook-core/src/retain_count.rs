//! How often the program has retained what ends with its last release.
//!
//! Whoever owns it may know of more retains than were seen here, never of fewer: with another one left, a release is certainly not
//! the last.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Retains that were seen and not released. Once a release is about to be made, its retain does not count any more.
#[derive(Debug, Default)]
pub struct RetainCount(Mutex<u32>);

impl RetainCount {
    /// None seen.
    pub const fn new() -> Self {
        Self(Mutex::new(0))
    }

    /// It has been retained.
    pub fn retained(&self) {
        let mut seen = self.seen();
        *seen = seen.saturating_add(1);
    }

    /// Makes a release with another retain left. One that may be the last is not made: that is the caller's.
    pub fn release<R, F: FnOnce() -> R>(&self, make: F) -> Result<R, F> {
        let mut seen = self.seen();
        *seen = seen.saturating_sub(1);
        // Locked, so that none that is found to be perhaps the last comes ahead of this one, which would then be.
        if *seen > 0 { Ok(make()) } else { Err(make) }
    }

    /// Nothing is known any more.
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

    /// Whether a release was found to be none that may be the last.
    fn is_certain(retains: &RetainCount) -> bool {
        retains.release(|| ()).is_ok()
    }

    #[test]
    fn a_release_with_another_retain_left_is_made_and_one_that_may_be_the_last_is_not() {
        let retains = RetainCount::new();
        (0..3).for_each(|_| retains.retained());
        assert_eq!([(); 4].map(|()| is_certain(&retains)), [true, true, false, false]);
        retains.retained();
        assert!(!is_certain(&retains), "what was released unseen is not owed");
    }

    #[test]
    fn after_a_reset_nothing_is_certain() {
        let retains = RetainCount::new();
        (0..3).for_each(|_| retains.retained());
        retains.forget();
        assert!(!is_certain(&retains));
    }

    #[test]
    fn nothing_is_found_to_be_the_last_while_another_release_is_made() {
        let retains = RetainCount::new();
        (0..2).for_each(|_| retains.retained());
        let others_wait = retains.release(|| retains.0.try_lock().is_err());
        assert!(others_wait.is_ok_and(|wait| wait));
    }
}
