//! When each process is inspected, and how many driver queries each pod may cause.

use super::Obstacle;
use super::ProcessKey;
use sluice_rate_limiter::{Backoff, Rate, RateLimiter};
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::time::Duration;

/// The time that a process with the driver open has to attach by itself.
const ATTACH_GRACE_NS: u64 = 2_000_000_000;
/// The first and the longest delay between two inspections of a process in which nothing changes.
const DELAYS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// The same for a process that has attached, also after its descriptors have changed: a driver library opens the driver some time before it
/// makes its channel groups. Without a new descriptor a process could only make groups by ioctls of its own, so the longest delay is long.
const ATTACHED_DELAYS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(256)];

#[derive(Debug)]
struct State {
    /// When the next inspection is due.
    due: u64,
    delay: Backoff,
    /// It has attached, and `delay` is that of an attached process.
    is_attached: bool,
    descriptors: Vec<RawFd>,
    /// The result of the last inspection; `None` before the first.
    last: Option<LastInspection>,
}

#[derive(Debug, PartialEq, Eq)]
struct LastInspection {
    /// Handles of the groups, sorted.
    groups: Vec<(u32, u32)>,
    obstacle: Option<Obstacle>,
}

/// The inspection schedule of all candidates.
#[derive(Debug, Default)]
pub(super) struct InspectionSchedule(HashMap<ProcessKey, State>);

impl InspectionSchedule {
    /// Forgets all processes but these.
    pub(super) fn retain(&mut self, present: &HashSet<ProcessKey>) {
        self.0.retain(|key, _| present.contains(key));
    }

    /// The time since which an inspection of a process is due; `None` if none is due. `descriptors` are its present ones. A process that has
    /// attached is inspected at once: what it has is what it announced.
    pub(super) fn due_since(
        &mut self,
        key: ProcessKey,
        descriptors: &[RawFd],
        is_attached: bool,
        now: u64,
    ) -> Option<u64> {
        let ([first, longest], grace) =
            if is_attached { (ATTACHED_DELAYS, 0) } else { (DELAYS, ATTACH_GRACE_NS) };
        let state = self.0.entry(key).or_insert_with(|| State {
            due: now.saturating_add(grace),
            delay: Backoff::new(first, longest),
            is_attached,
            descriptors: descriptors.to_vec(),
            last: None,
        });
        if std::mem::replace(&mut state.is_attached, is_attached) != is_attached {
            state.delay = Backoff::new(first, longest);
            state.due = state.due.min(now.saturating_add(grace));
        }
        if state.descriptors != descriptors {
            state.descriptors = descriptors.to_vec();
            // Descriptors opened before the first inspection do not shorten the time to attach.
            if state.last.is_some() || is_attached {
                state.due = state.due.min(now);
            }
            if is_attached {
                state.delay.succeeded();
            }
        }
        (now >= state.due).then_some(state.due)
    }

    /// The attached processes of which an inspection is due.
    pub(super) fn due_attached(&self, now: u64) -> impl Iterator<Item = ProcessKey> {
        self.0.iter().filter(move |(_, state)| state.is_attached && now >= state.due).map(|(key, _)| *key)
    }

    /// Makes an inspection due now.
    pub(super) fn set_due(&mut self, key: ProcessKey, now: u64) {
        if let Some(state) = self.0.get_mut(&key) {
            state.due = state.due.min(now);
        }
    }

    /// Records the result of an inspection. The delay doubles while the result stays the same.
    pub(super) fn record(
        &mut self,
        key: ProcessKey,
        mut groups: Vec<(u32, u32)>,
        obstacle: Option<Obstacle>,
        now: u64,
    ) {
        let Some(state) = self.0.get_mut(&key) else { return };
        groups.sort_unstable();
        let result = LastInspection { groups, obstacle };
        if state.last.as_ref() != Some(&result) {
            state.delay.succeeded();
        }
        let delay = u64::try_from(state.delay.next_delay().as_nanos()).unwrap_or(u64::MAX);
        state.due = now.saturating_add(delay);
        state.last = Some(result);
    }

    /// The obstacle that the last inspection of a process met.
    pub(super) fn obstacle(&self, key: ProcessKey) -> Option<&Obstacle> {
        self.0.get(&key)?.last.as_ref()?.obstacle.as_ref()
    }
}

/// Queries a second for all pods together, while there are at most 16: a quarter of a second of a real driver.
const QUERIES_PER_SECOND: u64 = 1 << 18;
/// Queries a second that every pod has at least: a few processes with one context each.
const MIN_QUERIES_PER_POD: u64 = 1 << 14;

/// The rate of driver queries that inspections make on behalf of each pod. The tenant decides what an inspection of its processes costs. So
/// each pod has a token bucket of its own: a pod that has used up its queries waits for the next scans, and the other pods do not.
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

    /// Whether a process of this pod may be inspected. A pod that has come since the last division has the least rate.
    pub(super) fn allows(&mut self, pod: &str, now: u64) -> bool {
        let least = Rate::per_second(MIN_QUERIES_PER_POD, MIN_QUERIES_PER_POD);
        let limiter = self.0.entry(pod.to_owned()).or_insert_with(|| RateLimiter::full(least));
        limiter.available(now) > 0
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
