//! The rate of driver queries that inspections make on behalf of each pod.
//!
//! The tenant decides what an inspection of its processes costs. So each pod has a token bucket of its own: a pod that has used up its
//! queries waits for the next scans, and the other pods do not.

use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{HashMap, HashSet};

/// Queries a second for all pods together: a quarter of a second of a real driver.
const QUERIES_PER_SECOND: u64 = 1 << 18;
/// Queries a second that every pod has at least: a few processes with one context each.
const MIN_QUERIES_PER_POD: u64 = 1 << 14;

/// The query rate of each pod.
#[derive(Debug, Default)]
pub(super) struct PodQueryLimits(HashMap<String, RateLimiter>);

impl PodQueryLimits {
    /// Divides the queries equally among the pods that have candidates. A pod keeps its debt, and saves at most one second's part.
    pub(super) fn begin_scan(&mut self, pods: &HashSet<&str>, now: u64) {
        self.0.retain(|pod, _| pods.contains(pod.as_str()));
        let count = u64::try_from(pods.len()).unwrap_or(u64::MAX).max(1);
        let part = (QUERIES_PER_SECOND / count).max(MIN_QUERIES_PER_POD);
        let rate = Rate::per_second(part, part);
        for pod in pods {
            let limiter = self.0.entry((*pod).to_owned()).or_insert_with(|| RateLimiter::full(rate));
            limiter.set_rate(rate, now);
        }
    }

    /// Whether a process of this pod may be inspected.
    pub(super) fn allows(&self, pod: &str, now: u64) -> bool {
        self.0.get(pod).is_some_and(|limiter| limiter.available(now) > 0)
    }

    /// Charges queries to a pod.
    pub(super) fn charge(&mut self, pod: &str, queries: u32, now: u64) {
        if let Some(limiter) = self.0.get_mut(pod) {
            limiter.take(queries.into(), u64::MAX, now);
        }
    }
}

#[cfg(test)]
mod tests;
