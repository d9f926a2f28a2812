//! Wake-ups of one process: its eventfd, since when the manager requests wake-ups, and how many the manager accepts.
//!
//! Each wake-up costs a round of the event loop. A process that exceeds the limit is polled only: the manager removes its eventfd from
//! the poller.

use sluice_rate_limiter::{Rate, RateLimiter};
use std::os::fd::OwnedFd;

/// Whether a wake-up came with news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// The manager requested it, and the process has work or has had or announced some since then.
    WithActivity,
    /// The manager did not request it, or nothing has happened.
    WithoutActivity,
}

impl Wakeup {
    /// Nanoseconds of the budget that it takes.
    const fn cost_ns(self) -> u64 {
        match self {
            // 10,000 a second are accepted for ever. The activity is the process's word only.
            Self::WithActivity => 100_000,
            // 1,000 a second are accepted for ever. An honest process stays below: it reads the request just before the manager
            // withdraws it at most once for each time that it begins to work.
            Self::WithoutActivity => 1_000_000,
        }
    }
}

/// 10 s of wake-ups at once, refilled by 1 s a second: 10,000 without activity, and 1,000 a second in the long run. While gates are
/// closed the loop polls 4,000 to 10,000 times a second without any wake-up.
const RATE: Rate = Rate::one_per(10_000_000_000, 1);

/// Wake-ups of one process.
#[derive(Debug)]
pub(crate) struct Wakeups {
    /// The process writes here when it goes from idle to busy, if its page requests that. Never read: the process can make reading
    /// wait.
    pub(crate) eventfd: Option<OwnedFd>,
    /// Since when its page requests wake-ups, if it does.
    pub(crate) requested_since: Option<u64>,
    /// Survives a new eventfd, so that attaching anew does not refill it.
    limiter: RateLimiter,
}

impl Default for Wakeups {
    fn default() -> Self {
        Self { eventfd: None, requested_since: None, limiter: RateLimiter::full(RATE) }
    }
}

impl Wakeups {
    /// Counts a wake-up at `now`. Returns `false` once there are too many.
    pub(crate) fn accept(&mut self, wakeup: Wakeup, now: u64) -> bool {
        // An excess is remembered for as long as one wake-up costs.
        self.limiter.take(wakeup.cost_ns(), wakeup.cost_ns(), now)
    }
}

#[cfg(test)]
mod tests;
