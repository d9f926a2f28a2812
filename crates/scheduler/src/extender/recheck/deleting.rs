//! A second look at pods that are being deleted, one by one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::api::Api;
use sluice_placement::Demand;
use tokio::time::{Instant, timeout};

use super::super::extender::Extender;
use super::super::objects::Pod;
use super::super::placement_state::DeletingPod;
use super::RecheckOutcome;

/// Pods that are asked about for one question at most.
const MOST: usize = 16;
/// Requests: so many at once, and so many a second in the long run.
const AT_ONCE: u32 = 32;
const PER_SECOND: f64 = 20.0;
/// How long the answers may take; they take a millisecond or two. Tests decide by what comes, not by when.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(10) } else { Duration::from_millis(250) };
/// So many times as long as answers were waited for in vain nobody is asked: those who wait for room wait for that time, too.
const REST: u32 = 20;

/// Requests that may be made now.
#[derive(Debug)]
pub(super) struct RequestBudget {
    left: f64,
    at: Instant,
    /// Until when there are none.
    rests: Instant,
}

impl RequestBudget {
    pub(super) fn full(now: Instant) -> Self {
        Self { left: f64::from(AT_ONCE), at: now, rests: now }
    }

    /// Answers were waited for so long, and did not come.
    fn rest(&mut self, waited: Duration) {
        self.rests = Instant::now() + waited * REST;
    }

    /// Takes up to so many requests.
    fn take(&mut self, wanted: usize) -> usize {
        let now = Instant::now();
        if now < self.rests {
            return 0;
        }
        let earned = now.duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.left = f64::from(AT_ONCE).min(self.left + earned);
        self.at = now;
        let mut taken = 0;
        while taken < wanted && self.left >= 1.0 {
            self.left -= 1.0;
            taken += 1;
        }
        taken
    }
}

impl Extender {
    /// Asks whether pods that are being deleted, and whose end would make room on one of these nodes, are still there.
    /// `asked` is when the question came that this is for. What it finds is a change as the watches make them.
    pub(crate) async fn recheck_deleting<'a>(
        &self,
        asked: Instant,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
    ) {
        if self.state().deleting.is_empty() {
            return;
        }
        let mut budget = self.recheck.by_pod.lock().await;
        let mut suspects = self.suspects(asked, demand, nodes);
        if suspects.is_empty() {
            return;
        }
        let all = suspects.len();
        suspects.sort_by_key(|(_, ending)| ending.checked_at);
        suspects.truncate(budget.take(all.min(MOST)));
        let began = Instant::now();
        let answers = join_all(suspects.iter().map(|(uid, ending)| self.recheck_pod(uid, ending))).await;
        if began.elapsed() >= PATIENCE {
            budget.rest(began.elapsed());
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

    /// Pods that are being deleted, whose end would make room, and that nobody has looked at since the question came.
    fn suspects<'a>(
        &self,
        asked: Instant,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Vec<(Arc<str>, DeletingPod)> {
        let state = self.state();
        let pods = state.index.in_the_way(demand, nodes, |pod| state.deleting.contains_key(pod));
        let pods = pods.into_iter().filter_map(|pod| Some((pod.clone(), state.deleting.get(&*pod)?.clone())));
        pods.filter(|(_, ending)| ending.checked_at.is_none_or(|looked| looked < asked)).collect()
    }

    async fn recheck_pod(&self, uid: &str, pod: &DeletingPod) -> RecheckOutcome {
        let began = Instant::now();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let Ok(Ok(found)) = timeout(PATIENCE, pods.get_opt(&pod.name)).await else {
            return RecheckOutcome::Unsure;
        };
        let mut state = self.state();
        if found.is_some_and(|found| found.uid() == Some(uid) && !found.has_ended()) {
            if let Some(ending) = state.deleting.get_mut(uid) {
                ending.checked_at = Some(began);
            }
            return RecheckOutcome::Nothing;
        }
        state.end_unobserved(uid);
        RecheckOutcome::Found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_about_single_pods_are_rationed() {
        let mut budget = RequestBudget::full(Instant::now());
        assert_eq!((budget.take(16), budget.take(16), budget.take(16)), (16, 16, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((budget.take(16), budget.take(16)), (16, 4));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(budget.take(1000), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_left_in_peace() {
        let mut budget = RequestBudget::full(Instant::now());
        budget.rest(Duration::from_millis(250));
        tokio::time::advance(Duration::from_millis(4_999)).await;
        assert_eq!(budget.take(1), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(budget.take(1), 1);
    }
}
