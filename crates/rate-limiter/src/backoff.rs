//! Delays before something that failed is tried again: they double up to a maximum.
//!
//! ```
//! use sluice_rate_limiter::Backoff;
//! use std::time::Duration;
//!
//! let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
//! assert_eq!(backoff.failed(0), 100_000_000);
//! assert!(!backoff.is_ready(99_999_999));
//! backoff.succeeded();
//! assert!(backoff.is_ready(0));
//! ```

use std::time::Duration;

/// Exponential backoff. The caller either waits for [`Self::next_delay`] itself, or passes the clock to
/// [`Self::failed`] and polls [`Self::is_ready`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// When the next attempt may begin, nanoseconds of the caller's clock.
    ready_at: u64,
}

impl Backoff {
    /// Delays from `first` to `longest`. The first attempt may begin at once.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, ready_at: 0 }
    }

    /// The delay after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    /// Records a failure at `now`. Returns when the next attempt may begin.
    pub fn failed(&mut self, now: u64) -> u64 {
        let delay = u64::try_from(self.next_delay().as_nanos()).unwrap_or(u64::MAX);
        self.ready_at = self.ready_at.max(now.saturating_add(delay));
        self.ready_at
    }

    /// Records a success: the next attempt may begin at once, and the next failure has the shortest delay.
    pub const fn succeeded(&mut self) {
        (self.next, self.ready_at) = (self.first, 0);
    }

    /// Whether an attempt may begin at `now`.
    pub const fn is_ready(&self, now: u64) -> bool {
        now >= self.ready_at
    }

    /// When the next attempt may begin, nanoseconds of the caller's clock.
    pub const fn ready_at(&self) -> u64 {
        self.ready_at
    }
}

/// The delays, without an end.
impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_delay())
    }
}

#[cfg(test)]
mod tests;
