//! The end of standard input.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A flag that a thread sets when standard input ends.
pub(super) fn watch_end() -> Arc<AtomicBool> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_ended);
    thread::spawn(move || {
        let mut buffer = [0; 256];
        while matches!(std::io::stdin().read(&mut buffer), Ok(1..)) {}
        flag.store(true, Ordering::Release);
    });
    has_ended
}
