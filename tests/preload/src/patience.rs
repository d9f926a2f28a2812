//! Waiting for something to be seen.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test is taken to hang. No outcome depends on it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `look` finds something, and returns it.
///
/// # Panics
/// When nothing was found within [`PATIENCE`]; `what` says what was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for: {what}");
        thread::sleep(LOOK_EVERY);
    }
}
