//! A lock on the machine: tests with bounds on real time, or on shares of it, run alone, all others side by side.

use crate::artifacts;
use std::fs::{File, OpenOptions};

/// Held while a test runs; released on drop.
#[must_use = "the lock is held only until this is dropped"]
pub struct MachineLock(
    #[allow(dead_code, reason = "held for its lock, which ends with the descriptor")] File,
);

fn lock_file() -> File {
    let path = artifacts::built().scratch.join("machine.lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("opening {}: {error}", path.display()))
}

/// For a test with a bound on real time or on a share of it: no other test of this crate runs meanwhile, in this process or in another.
///
/// # Panics
/// When the lock file cannot be used.
pub fn exclusive() -> MachineLock {
    let file = lock_file();
    file.lock().unwrap_or_else(|error| panic!("locking the machine for one test: {error}"));
    MachineLock(file)
}

/// For all other tests.
///
/// # Panics
/// When the lock file cannot be used.
pub fn shared() -> MachineLock {
    let file = lock_file();
    file.lock_shared().unwrap_or_else(|error| panic!("locking the machine beside others: {error}"));
    MachineLock(file)
}
