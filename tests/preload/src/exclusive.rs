//! Who may run beside whom: tests that measure shares of time want the machine to themselves.

use crate::artifacts;
use std::fs::{File, OpenOptions};

/// Held for as long as a test runs; released on drop.
#[must_use = "the test runs undisturbed only while this is held"]
pub struct Turn(#[allow(dead_code, reason = "held for its lock, which ends with the descriptor")] File);

fn lock_file() -> File {
    let path = artifacts::built().scratch.join("machine.lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("opening {}: {error}", path.display()))
}

/// For a test that measures: no other test of this crate runs meanwhile, in this process or another.
///
/// # Panics
/// When the lock file cannot be used.
pub fn alone() -> Turn {
    let file = lock_file();
    file.lock().unwrap_or_else(|error| panic!("locking the machine for one test: {error}"));
    Turn(file)
}

/// For all other tests.
///
/// # Panics
/// When the lock file cannot be used.
pub fn beside_others() -> Turn {
    let file = lock_file();
    file.lock_shared().unwrap_or_else(|error| panic!("locking the machine beside others: {error}"));
    Turn(file)
}
