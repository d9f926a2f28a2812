//! The end of a generator: after a time, after a number of launches, or when its standard input ends, whichever comes first. Each line
//! on standard input is a mark, which begins a new series of measurements.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a generator that waits for a mark checks for one.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// The conditions that end a generator; by default there are none.
#[derive(Debug, Clone, Default)]
pub struct StopCondition {
    after: Option<Duration>,
    count: Option<u64>,
    requested: Arc<AtomicBool>,
    marks: Arc<AtomicU64>,
}

impl StopCondition {
    /// Ends `after` a time counted from the first kernel, or once `count` launches were made.
    pub fn new(after: Option<Duration>, count: Option<u64>) -> Self {
        Self { after, count, ..Self::default() }
    }

    /// Ends also when standard input ends. So a generator never outlives the program that has the other end.
    /// Errors: the thread that reads standard input cannot be started.
    pub fn with_stdin(self) -> io::Result<Self> {
        let (requested, marks) = (Arc::clone(&self.requested), Arc::clone(&self.marks));
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            count_lines(io::stdin(), &marks);
            requested.store(true, Ordering::Release);
        })?;
        Ok(self)
    }

    /// The count of lines read from standard input.
    pub fn marks(&self) -> u64 {
        self.marks.load(Ordering::Acquire)
    }

    /// Waits for the first mark, or for the end.
    pub fn wait_for_mark(&self) {
        while self.marks() == 0 && !self.requested.load(Ordering::Acquire) {
            thread::sleep(CHECK_EVERY);
        }
    }

    /// Whether the run is over. `begin` is the time at which its first kernel was completed.
    pub fn reached(&self, begin: Instant, now: Instant, launches: u64) -> bool {
        self.after.is_some_and(|after| now.saturating_duration_since(begin) >= after)
            || self.count.is_some_and(|count| launches >= count)
            || self.requested.load(Ordering::Acquire)
    }
}

fn count_lines(mut input: impl Read, marks: &AtomicU64) {
    let mut buffer = [0; 64];
    while let Ok(read @ 1..) = input.read(&mut buffer) {
        let lines = buffer.iter().take(read).filter(|byte| **byte == b'\n').count();
        marks.fetch_add(lines as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
