//! Count of the program's retains of an object that ends with its last release.
//!
//! The object's owner may count more retains than the hook saw, never fewer. So if another seen retain is left, a release is certainly
//! not the last.

use std::sync::Mutex;

use crate::lock;

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
        let mut seen = lock(&self.0);
        *seen = seen.saturating_add(1);
    }

    /// Makes a release if another retain is left. Otherwise it may be the last and is returned for the caller to make.
    pub fn release<R, F: FnOnce() -> R>(&self, make: F) -> Result<R, F> {
        let mut seen = lock(&self.0);
        *seen = seen.saturating_sub(1);
        // With the lock held: a release that may be the last must not overtake this one, which would then be the last.
        if *seen > 0 { Ok(make()) } else { Err(make) }
    }

    /// Forgets all retains.
    pub fn forget(&self) {
        *lock(&self.0) = 0;
    }
}

#[cfg(test)]
mod tests;
