//! Count of the program's retains of an object that ends with its last release.
//!
//! The object's owner may count more retains than the hook saw, never fewer. So if another seen retain is left, a release is certainly
//! not the last.

use std::sync::{Mutex, MutexGuard};

use crate::lock;

/// Retains of one object.
#[derive(Debug, Default)]
pub struct RetainCount {
    /// Retains that were seen and not released. The retain of a release stops counting just before the release is made.
    seen: Mutex<u32>,
    /// Held during a call that may end the object, until its end is known and dealt with. A retain in between would make a new object of
    /// the same name.
    ending: Mutex<()>,
}

impl RetainCount {
    /// No retain seen.
    pub const fn new() -> Self {
        Self { seen: Mutex::new(0), ending: Mutex::new(()) }
    }

    /// Makes a retain, and counts it if it has succeeded. Waits while the object may be ending.
    pub fn retain<R>(&self, make: impl FnOnce() -> R, succeeded: impl FnOnce(&R) -> bool) -> R {
        let _ending = lock(&self.ending);
        let result = make();
        if succeeded(&result) {
            let mut seen = lock(&self.seen);
            *seen = seen.saturating_add(1);
        }
        result
    }

    /// To be held from just before a call that may end the object until its end is dealt with.
    pub fn begin_end(&self) -> MutexGuard<'_, ()> {
        lock(&self.ending)
    }

    /// Makes a release if another retain is left. Otherwise it may be the last and is returned for the caller to make.
    pub fn release<R, F: FnOnce() -> R>(&self, make: F) -> Result<R, F> {
        let mut seen = lock(&self.seen);
        *seen = seen.saturating_sub(1);
        // With the lock held: a release that may be the last must not overtake this one, which would then be the last.
        if *seen > 0 { Ok(make()) } else { Err(make) }
    }

    /// Forgets all retains.
    pub fn forget(&self) {
        *lock(&self.seen) = 0;
    }
}

#[cfg(test)]
mod tests;
