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
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn pod_beyond_its_query_rate_waits_and_other_pods_do_not() {
        let pods = HashSet::from(["expensive", "cheap"]);
        let mut limits = PodQueryLimits::default();
        let mut inspections = [0, 0];
        for second in 0..100 {
            let now = second * S;
            limits.begin_scan(&pods, now);
            for (pod, (count, queries)) in
                ["expensive", "cheap"].into_iter().zip(inspections.iter_mut().zip([1 << 18, 100]))
            {
                // Each pod has ten processes of which an inspection is due.
                for _ in 0..10 {
                    if limits.allows(pod, now) {
                        limits.charge(pod, queries, now);
                        *count += 1;
                    }
                }
            }
        }
        assert_eq!(inspections, [50, 1000]);
    }

    #[test]
    fn unused_queries_are_not_saved_and_a_new_pod_has_its_part() {
        let mut limits = PodQueryLimits::default();
        (0..9).for_each(|second| limits.begin_scan(&HashSet::from(["one"]), second * S));
        limits.charge("one", 1 << 18, 8 * S);
        assert!(!limits.allows("one", 8 * S) && !limits.allows("another", 8 * S));
        limits.begin_scan(&HashSet::from(["another"]), 8 * S);
        assert!(limits.allows("another", 8 * S));
    }
}
