//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit of every wait, after which the test fails as hanging. No outcome depends on it.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Time between two polls.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(5);

/// Calls `poll` until it returns a value.
///
/// # Panics
/// When there is no value within [`TIMEOUT`]; `what` names the condition.
#[track_caller]
pub fn eventually<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    polling(what, poll, pause)
}

/// [`eventually`] with another pause between two polls.
#[track_caller]
pub(crate) fn polling<T>(what: &str, mut poll: impl FnMut() -> Option<T>, mut pause: impl FnMut()) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "waited {TIMEOUT:?} in vain for: {what}");
        pause();
    }
}

/// Sleeps between two polls.
pub fn pause() {
    thread::sleep(POLL_EVERY);
}
