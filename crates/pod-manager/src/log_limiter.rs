//! The limit of log lines: a client that repeats one mistake does not fill the log.

use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::HashMap;

/// 10 lines of one kind at once, then one a second.
const RATE: Rate = Rate::per_second(10, 1);

/// Decides which log lines are written, by their kind.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    limiter: RateLimiter,
    dropped: u64,
}

impl LogLimiter {
    /// `Some` if a line of this kind may be written now, with the number of lines dropped since the last one.
    pub(crate) fn pass(&mut self, kind: &'static str, now: u64) -> Option<u64> {
        let kind = self.kinds.entry(kind).or_insert(Kind { limiter: RateLimiter::full(RATE), dropped: 0 });
        if kind.limiter.try_take(1, now) {
            return Some(std::mem::take(&mut kind.dropped));
        }
        kind.dropped += 1;
        None
    }
}

#[cfg(test)]
mod tests;
