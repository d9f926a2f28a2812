//! Synchronisation types: the standard library's, or loom's under its model checker.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks even if a thread panicked while it held the lock: the tenant's process has to go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for `changed`, at most for `at_most` if it is given, and holds the lock again afterwards.
pub(crate) fn wait<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Option<Duration>,
) -> MutexGuard<'a, T> {
    match at_most {
        Some(at_most) => changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0,
        None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}
