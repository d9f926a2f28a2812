//! The token bucket that enforces a limit: credit accrues at the rate of the limit, up to a depth.
//!
//! A client may get a grant while its level is not negative, and is charged its usage afterwards. Over any span it is
//! therefore charged at most limit × span + depth + one grant. After a grant of `q` it waits `q × (1 - limit) / limit`.
//!
//! docs/design/ledger.md explains the two depths.
//!
//! The general [`RateLimiter`](sluice_rate_limiter::RateLimiter) has one depth, and a charge to it is made at one
//! moment. This bucket needs two depths and charges for a past span, during which it earns credit even when full.
//! Therefore it is a type of its own.

use crate::share::{Share, WHOLE_PPM};

/// How much credit can be saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depth {
    /// While idle, nanoseconds of GPU time.
    pub idle_ns: u64,
    /// While waiting for the GPU: the credit of this time, nanoseconds.
    pub waiting_ns: u64,
}

/// A bucket with a level in nanoseconds × parts per million: exact, no remainder is lost when it fills.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitBucket {
    rate: Share,
    depth: Depth,
    level: i128,
    filled_at: u64,
}

impl LimitBucket {
    /// A bucket for `rate` of the GPU, as full as it gets while idle.
    pub fn new(rate: Share, depth: Depth, now: u64) -> Self {
        Self { rate, depth, level: scaled(depth.idle_ns), filled_at: now }
    }

    /// The client was idle until `now`: credit beyond the idle depth is lost.
    pub fn was_idle(&mut self, now: u64) {
        self.fill(now);
        self.level = self.level.min(scaled(self.depth.idle_ns));
    }

    /// Takes out `used_ns` of GPU time, spent between `from` and `to`. The level may become negative. Credit earned in
    /// that span counts even if the bucket was full.
    pub fn charge(&mut self, from: u64, to: u64, used_ns: u64) {
        self.fill(from);
        self.level = self.level.saturating_sub(scaled(used_ns));
        self.fill(to);
    }

    /// Changes the rate from `now` on. Credit earned before counts at the old rate, up to the depth. The same rate changes
    /// nothing: a span of which the end is still to come earns credit beyond the depth.
    pub fn set_rate(&mut self, rate: Share, now: u64) {
        if rate == self.rate {
            return;
        }
        self.fill(now);
        self.rate = rate;
    }

    /// When the level is no longer negative: at or before `now` if it may be granted, `None` if never (rate zero).
    pub fn ready_at(&self, now: u64) -> Option<u64> {
        self.holds_at(0, now)
    }

    /// The GPU time that it holds at `now`, rounded down; zero if the level is negative.
    pub fn left_ns(&self, now: u64) -> u64 {
        u64::try_from(self.level_at(now) / i128::from(WHOLE_PPM)).unwrap_or(0)
    }

    /// Whether more was taken out than it held.
    pub fn is_overdrawn(&self, now: u64) -> bool {
        self.level_at(now) < 0
    }

    /// When it holds this much GPU time: `now` if it does already, `None` if never (rate zero).
    pub fn holds_at(&self, ns: u64, now: u64) -> Option<u64> {
        let missing = scaled(ns) - self.level_at(now);
        if missing <= 0 {
            return Some(now);
        }
        let rate = i128::from(self.rate.ppm());
        let wait = if rate == 0 { return None } else { (missing + rate - 1) / rate };
        Some(now.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn fill(&mut self, now: u64) {
        self.level = self.level_at(now);
        self.filled_at = self.filled_at.max(now);
    }

    fn level_at(&self, now: u64) -> i128 {
        let elapsed = now.saturating_sub(self.filled_at);
        let rate = i128::from(self.rate.ppm());
        let most = (i128::from(self.depth.waiting_ns) * rate).max(scaled(self.depth.idle_ns));
        self.level.saturating_add(i128::from(elapsed) * rate).min(most)
    }
}

/// GPU time in the unit of the level.
fn scaled(ns: u64) -> i128 {
    i128::from(ns) * i128::from(WHOLE_PPM)
}

#[cfg(test)]
mod tests;
