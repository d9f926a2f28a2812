//! Rechecks pods that are being deleted, one request per pod.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::api::Api;
use sluice_placement::Demand;
use sluice_rate_limiter::{Rate, RateLimiter};
use tokio::time::{Instant, timeout};

use super::super::extender::{DeletingPod, Extender};
use super::super::objects::Pod;
use super::RecheckOutcome;

/// Most pods that are rechecked for one filter call.
const MAX_PODS: usize = 16;
/// Rate of the requests: 32 at once, 20 a second in the long run.
const RATE: Rate = Rate::per_second(32, 20);
/// Timeout of the requests; an answer takes one or two milliseconds. Tests must not depend on the machine's speed.
const TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(10) } else { Duration::from_millis(250) };
/// After a timeout no request is made for this many times the time waited, because filter calls wait for the requests.
const PAUSE_FACTOR: u32 = 20;

/// Limits the requests. The limiter's clock begins with it.
#[derive(Debug)]
pub(super) struct RequestLimiter {
    limiter: RateLimiter,
    began: Instant,
    /// No requests before this time.
    paused_until: Instant,
}

impl RequestLimiter {
    pub(super) const fn full(now: Instant) -> Self {
        Self { limiter: RateLimiter::full(RATE), began: now, paused_until: now }
    }

    /// Records a timeout after this time.
    fn pause(&mut self, waited: Duration) {
        self.paused_until = Instant::now() + waited * PAUSE_FACTOR;
    }

    /// Takes up to this many requests.
    fn take(&mut self, wanted: usize) -> usize {
        let now = Instant::now();
        if now < self.paused_until {
            return 0;
        }
        let elapsed_ns = u64::try_from(now.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        usize::try_from(self.limiter.take_up_to(wanted, elapsed_ns)).unwrap_or(usize::MAX)
    }
}

impl Extender {
    /// Asks whether pods still exist that are being deleted and whose end would make room on one of these nodes.
    /// `asked` is the time of the filter call. An ended pod is released, which counts as a change of the watches.
    pub(crate) async fn recheck_deleting<'a>(
        &self,
        asked: Instant,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
    ) {
        if self.state().deleting.is_empty() {
            return;
        }
        let mut limiter = self.recheck.by_pod.lock().await;
        let mut suspects = self.suspects(asked, demand, nodes);
        if suspects.is_empty() {
            return;
        }
        let all = suspects.len();
        suspects.sort_by_key(|(_, pod)| pod.checked_at);
        suspects.truncate(limiter.take(all.min(MAX_PODS)));
        let began = Instant::now();
        let answers = join_all(suspects.iter().map(|(uid, pod)| self.recheck_pod(uid, pod))).await;
        if began.elapsed() >= TIMEOUT {
            limiter.pause(began.elapsed());
        }
        let outcome = if answers.contains(&RecheckOutcome::Found) {
            RecheckOutcome::Found
        } else if answers.len() < all || answers.contains(&RecheckOutcome::Unsure) {
            RecheckOutcome::Unsure
        } else {
            RecheckOutcome::Nothing
        };
        self.recheck_done(outcome);
    }

    /// Pods that are being deleted, whose end would make room, and that were not checked since `asked`.
    fn suspects<'a>(
        &self,
        asked: Instant,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Vec<(Arc<str>, DeletingPod)> {
        let state = self.state();
        let pods = state.index.possibly_ended_pods(demand, nodes, |pod| state.deleting.contains_key(pod));
        let pods = pods.into_iter().filter_map(|pod| Some((pod.clone(), state.deleting.get(&*pod)?.clone())));
        pods.filter(|(_, pod)| pod.checked_at.is_none_or(|checked| checked < asked)).collect()
    }

    async fn recheck_pod(&self, uid: &str, pod: &DeletingPod) -> RecheckOutcome {
        let began = Instant::now();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let Ok(Ok(found)) = timeout(TIMEOUT, pods.get_opt(&pod.name)).await else {
            return RecheckOutcome::Unsure;
        };
        let mut state = self.state();
        if found.is_some_and(|found| found.uid() == Some(uid) && !found.has_ended()) {
            if let Some(deleting) = state.deleting.get_mut(uid) {
                deleting.checked_at = Some(began);
            }
            return RecheckOutcome::Nothing;
        }
        state.end_unobserved(uid);
        RecheckOutcome::Found
    }
}

#[cfg(test)]
mod tests;
