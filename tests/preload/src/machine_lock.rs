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

/// Time of this machine's processors that its host has given to other machines, in nanoseconds ("steal" in /proc/stat).
///
/// # Panics
/// When /proc/stat cannot be read.
pub fn stolen_ns() -> u64 {
    /// A tick of /proc/stat: USER_HZ is 100 for every program.
    const TICK_NS: u64 = 10_000_000;
    let stat =
        std::fs::read_to_string("/proc/stat").unwrap_or_else(|error| panic!("reading /proc/stat: {error}"));
    let ticks = stat.split_whitespace().nth(8).and_then(|steal| steal.parse::<u64>().ok());
    ticks.unwrap_or_else(|| panic!("no steal time in /proc/stat: {stat}")) * TICK_NS
}
