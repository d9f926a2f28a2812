//! Before a pod is refused, verifies that the pods which hold the needed GPUs still exist.
//!
//! The kube-scheduler may see a pod's end before the extender's watch does. A pod that is refused then is asked about
//! again only at the next event. So the extender asks the API server first, with as few requests as possible:
//!
//! * pods that are being deleted, if their end would make room: one request each ([`deleting`]);
//! * in a cluster with few pods: one list of all, because a pod that completes or is force-deleted gives no notice
//!   ([`Extender::recheck_all`]).
//!
//! An answer counts for every filter call that came before its request. Both kinds have a rate limit: a thousand
//! waiting pods cause no more requests than ten.

mod deleting;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::extender::Extender;
use super::objects::Pod;
use deleting::RequestLimiter;

/// A list is made only if at most this many pods are known: their metadata are then about 1 MiB.
const MAX_PODS: usize = 500;
/// Timeout of the list. Tests must not depend on the machine's speed.
const TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(10) } else { Duration::from_millis(500) };
/// Minimum interval between the begins of two lists; also at least `PAUSE_FACTOR` times the duration of the last one.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 20;

/// Outcome of a recheck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum RecheckOutcome {
    /// Some of the pods have ended.
    Found,
    /// All of the pods still exist.
    Nothing,
    /// Some pods were not checked: too many, too often, or the API server did not answer in time.
    Unsure,
}

/// The rate limits. A filter call holds the lock during its recheck; calls that wait for the lock use its result.
#[derive(Debug)]
pub(crate) struct Recheck {
    by_pod: Mutex<RequestLimiter>,
    lists: Mutex<ListSchedule>,
}

impl Recheck {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            by_pod: Mutex::new(RequestLimiter::full(now)),
            lists: Mutex::new(ListSchedule { began: None, next: now }),
        }
    }
}

/// When lists began and when the next may begin.
#[derive(Debug)]
struct ListSchedule {
    /// Begin of the last list that was answered.
    began: Option<Instant>,
    /// Earliest begin of the next list.
    next: Instant,
}

impl Extender {
    /// Asks which bound pods remain, if they are few. `asked` is the time of the filter call. An ended pod is
    /// released, which counts as a change of the watches.
    pub(crate) async fn recheck_all(&self, asked: Instant) {
        let mut lists = self.recheck.lists.lock().await;
        if lists.began.is_some_and(|began| began >= asked) {
            return;
        }
        let began = Instant::now();
        let known = self.known_as_bound();
        if known.is_empty() || known.len() > MAX_PODS || began < lists.next {
            return;
        }
        let remaining = timeout(TIMEOUT, self.remaining_pods()).await;
        lists.next = began + MIN_INTERVAL.max(began.elapsed() * PAUSE_FACTOR);
        let outcome = match remaining {
            Ok(Ok(remaining)) => {
                lists.began = Some(began);
                self.release_all_but(&remaining, &known)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot list the remaining pods");
                RecheckOutcome::Unsure
            }
            Err(_) => RecheckOutcome::Unsure,
        };
        self.recheck_done(outcome);
    }

    /// Pods that the watch has shown as bound; one more than [`MAX_PODS`] at most.
    fn known_as_bound(&self) -> Vec<Arc<str>> {
        let state = self.state();
        let known = state.index.confirmed().filter(|pod| !state.unobserved_binds.contains(&***pod));
        known.take(MAX_PODS + 1).cloned().collect()
    }

    /// UIDs of the bound pods that have not ended, from a quorum read.
    async fn remaining_pods(&self) -> kube::Result<HashSet<String>> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut fields = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed".to_owned();
        if let Some(name) = &self.policy.scheduler_name {
            fields = format!("spec.schedulerName={name},{fields}");
        }
        let list = pods.list_metadata(&ListParams::default().fields(&fields)).await?;
        Ok(list.items.into_iter().filter_map(|pod| pod.metadata.uid).collect())
    }

    fn release_all_but(&self, remaining: &HashSet<String>, known: &[Arc<str>]) -> RecheckOutcome {
        let mut state = self.state();
        // Pods that were bound since are not in `known`. A pod that was known as bound and is not in the list has
        // ended.
        let gone = known.iter().filter(|pod| !remaining.contains(&***pod));
        let mut outcome = RecheckOutcome::Nothing;
        for pod in gone {
            state.end_unobserved(pod);
            outcome = RecheckOutcome::Found;
        }
        outcome
    }

    /// Counts the outcome. If pods have ended, reports a change of the index.
    pub(super) fn recheck_done(&self, outcome: RecheckOutcome) {
        self.metrics.record_recheck(outcome);
        if outcome == RecheckOutcome::Found {
            self.changed();
        }
    }
}
