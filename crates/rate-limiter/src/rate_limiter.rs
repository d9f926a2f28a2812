//! The token bucket for everything that is limited per time: controls, announcements, wake-ups, log lines, API
//! requests.
//!
//! The caller passes the clock. Any counter that only grows serves as the clock, for example the number of a scan. The
//! arithmetic is exact: no fraction of a token is lost when the bucket refills. A clock that goes backwards never adds
//! tokens.
//!
//! ```
//! use sluice_rate_limiter::{Rate, RateLimiter};
//!
//! // 32 requests at once, 20 a second in the long run.
//! let mut limiter = RateLimiter::full(Rate::per_second(32, 20));
//! assert!(limiter.try_take(32, 0));
//! assert!(!limiter.try_take(1, 49_999_999));
//! assert_eq!(limiter.ready_at(1), Some(50_000_000));
//! ```

/// Size and refill rate of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens that a full bucket holds.
    pub burst: u64,
    /// Tokens added each `period_ns`, spread evenly over it. Zero: the bucket never refills.
    pub tokens: u64,
    /// The time in which `tokens` are added, nanoseconds.
    pub period_ns: u64,
}

impl Rate {
    /// One token each `period_ns`.
    pub const fn one_per(burst: u64, period_ns: u64) -> Self {
        Self { burst, tokens: 1, period_ns }
    }

    /// So many tokens a second.
    pub const fn per_second(burst: u64, tokens: u64) -> Self {
        Self { burst, tokens, period_ns: 1_000_000_000 }
    }

    /// The time that adding `tokens` takes, in the unit of [`RateLimiter::full_at`].
    fn span(self, tokens: u64) -> u128 {
        u128::from(tokens) * u128::from(self.period_ns)
    }

    /// A time in the unit of [`RateLimiter::full_at`].
    fn scaled(self, ns: u64) -> u128 {
        u128::from(ns) * u128::from(self.tokens)
    }
}

/// A token bucket. It begins full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RateLimiter {
    rate: Rate,
    /// When the bucket is full again, in nanoseconds × `rate.tokens`: one number holds the whole state.
    full_at: u128,
}

impl RateLimiter {
    /// A full bucket.
    pub const fn full(rate: Rate) -> Self {
        Self { rate, full_at: 0 }
    }

    /// Takes `cost` tokens if the bucket holds them. Returns `false` and takes nothing otherwise.
    pub fn try_take(&mut self, cost: u64, now: u64) -> bool {
        let fits = self.missing(now).saturating_add(self.rate.span(cost)) <= self.rate.span(self.rate.burst);
        if fits {
            self.add(cost, now);
        }
        fits
    }

    /// Takes as many tokens as the bucket holds, `wanted` at most. Returns how many.
    pub fn take_up_to(&mut self, wanted: u64, now: u64) -> u64 {
        let taken = wanted.min(self.available(now));
        self.add(taken, now);
        taken
    }

    /// Takes `cost` tokens even if the bucket does not hold them. The debt never exceeds `max_debt` tokens; the rest of
    /// the cost is cancelled. Returns whether the bucket is without debt afterwards.
    pub fn take(&mut self, cost: u64, max_debt: u64, now: u64) -> bool {
        let before = self.full_at;
        self.add(cost, now);
        let begin = self.rate.scaled(now);
        let full = self.rate.span(self.rate.burst);
        let most = begin.saturating_add(full).saturating_add(self.rate.span(max_debt));
        self.full_at = self.full_at.min(most.max(before));
        self.full_at <= begin.saturating_add(full)
    }

    /// Whole tokens that the bucket holds.
    pub fn available(&self, now: u64) -> u64 {
        let full = self.rate.span(self.rate.burst);
        whole(full.saturating_sub(self.missing(now)), self.rate.period_ns, self.rate.burst)
    }

    /// When the bucket holds `cost` tokens, if none are taken before. A time in the past if it holds them already,
    /// `None` if it never will.
    pub fn ready_at(&self, cost: u64) -> Option<u64> {
        let room = self.rate.span(self.rate.burst.checked_sub(cost)?);
        let wait = self.full_at.saturating_sub(room);
        match wait.checked_div(u128::from(self.rate.tokens)) {
            Some(_) => Some(u64::try_from(wait.div_ceil(u128::from(self.rate.tokens))).unwrap_or(u64::MAX)),
            None => (wait == 0).then_some(0),
        }
    }

    /// Changes size and rate from `now` on. Whole tokens in the bucket and its debt are kept. Tokens
    /// beyond the new size are lost.
    pub fn set_rate(&mut self, rate: Rate, now: u64) {
        if rate == self.rate {
            return;
        }
        let held = self.available(now);
        let full = self.rate.span(self.rate.burst);
        let debt = self.missing(now).saturating_sub(full).div_ceil(u128::from(self.rate.period_ns.max(1)));
        let missing = u128::from(rate.burst.saturating_sub(held)).saturating_add(debt);
        let missing = missing.saturating_mul(u128::from(rate.period_ns));
        *self = Self { rate, full_at: rate.scaled(now).saturating_add(missing) };
    }

    /// The time until the bucket is full, in the unit of [`Self::full_at`].
    fn missing(&self, now: u64) -> u128 {
        self.full_at.saturating_sub(self.rate.scaled(now))
    }

    fn add(&mut self, cost: u64, now: u64) {
        self.full_at = self.full_at.max(self.rate.scaled(now)).saturating_add(self.rate.span(cost));
    }
}

/// `span` in tokens of `period_ns`, rounded down. Without a period the bucket is always full.
fn whole(span: u128, period_ns: u64, burst: u64) -> u64 {
    span.checked_div(u128::from(period_ns)).map_or(burst, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
