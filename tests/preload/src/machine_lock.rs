//! A lock on the machine: tests with bounds on real time, or on shares of it, run alone, all others side by side.

use crate::artifacts;
use std::fs::{File, OpenOptions};

/// Held while a test runs; released on drop.
#[must_use = "the lock is held only until this is dropped"]
pub struct MachineLock(
    #[allow(dead_code, reason = "held for its lock, which ends with the descriptor")] File,
);

fn lock_file(name: &str) -> File {
    let path = artifacts::built().scratch.join(name);
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("opening {}: {error}", path.display()))
}

/// The queue of the tests that wait for the machine. Without it a test that wants the machine alone would wait until no other test is left to
/// start, because a shared lock is granted beside other shared ones.
fn queue() -> MachineLock {
    let file = lock_file("machine.queue");
    file.lock().unwrap_or_else(|error| panic!("queueing for the machine: {error}"));
    MachineLock(file)
}

/// For a test with a bound on real time or on a share of it: no other test of this crate runs meanwhile, in this process or in another.
///
/// # Panics
/// When a lock file cannot be used.
pub fn exclusive() -> MachineLock {
    let _queue = queue();
    let file = lock_file("machine.lock");
    file.lock().unwrap_or_else(|error| panic!("locking the machine for one test: {error}"));
    MachineLock(file)
}

/// For all other tests.
///
/// # Panics
/// When a lock file cannot be used.
pub fn shared() -> MachineLock {
    let _queue = queue();
    let file = lock_file("machine.lock");
    file.lock_shared().unwrap_or_else(|error| panic!("locking the machine beside others: {error}"));
    MachineLock(file)
}
