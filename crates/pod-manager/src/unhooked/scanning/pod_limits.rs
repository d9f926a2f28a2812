//! How much work each pod may cause: driver queries of inspections, and listed descriptors.

use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{HashMap, HashSet};

/// Units of one kind of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Units a second for all pods together, while each has more than `least`.
    total: u64,
    /// Units a second that every pod has at least.
    least: u64,
}

/// Driver queries, 1 to 3 µs each: a quarter to three quarters of a second of a real driver for up to 16 pods, and for every pod a few
/// processes with one context each.
pub(super) const QUERIES: Budget = Budget { total: 1 << 18, least: 1 << 14 };

/// Listed descriptors, about 1 µs each: 0.8 % of a processor for up to 16 pods.
pub(super) const DESCRIPTORS: Budget = Budget { total: 1 << 13, least: 1 << 9 };

/// Microseconds of driver queries for attached processes in which nothing changes, inspections and continued search together: a quarter
/// of a percent of a processor for up to 20 pods. What is left to find are groups by ioctls of their own, and clients older than the attachment.
pub(super) const SETTLED_US: Budget = Budget { total: 2560, least: 1 << 7 };

/// The rate of work that is done on behalf of each pod. The tenant decides what its processes cost. So each pod has a token bucket of its own: a
/// pod that has used up its units waits for the next scans, and the other pods do not.
#[derive(Debug)]
pub(super) struct PodLimits {
    budget: Budget,
    pods: HashMap<String, RateLimiter>,
}

impl PodLimits {
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, pods: HashMap::new() }
    }

    /// Divides the units equally among these pods. A pod keeps its debt, also while it has no process, and saves at most one second's part.
    pub(super) fn divide(&mut self, pods: &HashSet<&str>, now: u64) {
        self.pods.retain(|pod, limiter| pods.contains(pod.as_str()) || limiter.available(now) == 0);
        let count = u64::try_from(pods.len()).unwrap_or(u64::MAX).max(1);
        let part = (self.budget.total / count).max(self.budget.least);
        let rate = Rate::per_second(part, part);
        for pod in pods {
            let limiter = self.pods.entry((*pod).to_owned()).or_insert_with(|| RateLimiter::full(rate));
            limiter.set_rate(rate, now);
        }
    }

    /// Whether work may be done for this pod. A pod that has come since the last division has the least rate.
    pub(super) fn allows(&mut self, pod: &str, now: u64) -> bool {
        self.available(pod, now) > 0
    }

    /// The units that may be used for this pod now.
    pub(super) fn available(&mut self, pod: &str, now: u64) -> u64 {
        let least = Rate::per_second(self.budget.least, self.budget.least);
        let limiter = self.pods.entry(pod.to_owned()).or_insert_with(|| RateLimiter::full(least));
        limiter.available(now)
    }

    /// Charges units to a pod.
    pub(super) fn charge(&mut self, pod: &str, units: u64, now: u64) {
        if let Some(limiter) = self.pods.get_mut(pod) {
            limiter.take(units, u64::MAX, now);
        }
    }
}

#[cfg(test)]
mod tests;
