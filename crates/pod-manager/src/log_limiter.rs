//! The limit of log lines, for each party that causes them: a client that repeats one mistake neither fills the log nor hides what the log
//! says about others.

use crate::party::Party;
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::HashMap;
use std::num::NonZeroU64;

/// 10 lines of one kind and cause at once, then one a second.
const LOG_RATE: Rate = Rate::per_second(10, 1);

/// Limits that are kept at once. Above it the peers without a client share one: each forked process is another peer.
const MAX_LIMITS: usize = 1024;

/// Lines of one kind and cause that were dropped since the last one.
pub(crate) type DroppedLines = Option<NonZeroU64>;

/// Decides which log lines are written.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    limits: HashMap<(&'static str, Party), Limit>,
}

#[derive(Debug)]
struct Limit {
    limiter: RateLimiter,
    dropped: u64,
}

impl LogLimiter {
    /// `Some` if a line of this kind and cause may be written now, with the number of lines dropped since the last one.
    pub(crate) fn pass(&mut self, kind: &'static str, cause: Party, now: u64) -> Option<DroppedLines> {
        let mut key = (kind, cause);
        if self.limits.len() >= MAX_LIMITS && !self.limits.contains_key(&key) {
            // Without a full bucket's count of dropped lines, it is what a new one would be.
            self.limits.retain(|_, limit| limit.limiter.available(now) < LOG_RATE.burst);
            if self.limits.len() >= MAX_LIMITS && matches!(cause, Party::Peer(_)) {
                key.1 = Party::OtherPeers;
            }
        }
        let new = || Limit { limiter: RateLimiter::full(LOG_RATE), dropped: 0 };
        let limit = self.limits.entry(key).or_insert_with(new);
        if limit.limiter.try_take(1, now) {
            return Some(NonZeroU64::new(std::mem::take(&mut limit.dropped)));
        }
        limit.dropped += 1;
        None
    }
}

#[cfg(test)]
mod tests;
