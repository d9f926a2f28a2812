//! The exported counters of a process under the hook, for tests and tools.

use std::sync::atomic::Ordering::Relaxed;

use sluice_hook_core::outcome::Bypass;

use crate::process::{self, COUNTERS};

/// Writes up to `capacity` counters and returns how many there are: launches, allocations refused, grants, panics caught,
/// then bypassed calls by reason.
///
/// # Safety
/// `counters` is null or writable for `capacity` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluice_hook_counters(counters: *mut u64, capacity: usize) -> usize {
    let launches: u64 = process::devices().map(|managed| managed.device.launches()).sum();
    let fixed = [
        launches,
        COUNTERS.refused.load(Relaxed),
        COUNTERS.grants.load(Relaxed),
        COUNTERS.panics.load(Relaxed),
    ];
    let all = fixed.into_iter().chain(Bypass::ALL.iter().map(|reason| COUNTERS.bypassed(*reason)));
    if !counters.is_null() {
        for (at, value) in all.take(capacity).enumerate() {
            // SAFETY: `at` is below `capacity`, so the caller guarantees that it is writable.
            unsafe { counters.add(at).write(value) };
        }
    }
    fixed.len() + Bypass::ALL.len()
}
