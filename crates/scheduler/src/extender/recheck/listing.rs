//! A second look at all pods: which of them are left.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use tokio::time::{Instant, timeout};

use super::super::extender::Extender;
use super::super::objects::Pod;
use super::RecheckOutcome;

/// All pods are asked for only if we know of no more than these: their metadata are about 1 MiB then.
const MOST: usize = 500;
/// How long the list may take. Tests decide by what comes, not by when.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(10) } else { Duration::from_millis(500) };
/// Between the beginnings of two lists lies at least this, and at least so many times as long as the last one took.
const EVERY: Duration = Duration::from_secs(1);
const REST: u32 = 20;

/// When lists began and may begin.
#[derive(Debug)]
pub(super) struct ListSchedule {
    /// When the last list that was answered began.
    began: Option<Instant>,
    /// When the next may begin.
    next: Instant,
}

impl ListSchedule {
    pub(super) fn none(now: Instant) -> Self {
        Self { began: None, next: now }
    }
}

impl Extender {
    /// Asks which bound pods are left, if they are few. `asked` is when the question came that this is for. What it finds is
    /// a change as the watches make them.
    pub(crate) async fn recheck_all(&self, asked: Instant) {
        let mut lists = self.recheck.lists.lock().await;
        if lists.began.is_some_and(|began| began >= asked) {
            return;
        }
        let began = Instant::now();
        let known = self.known_as_bound();
        if known.is_empty() || known.len() > MOST || began < lists.next {
            return;
        }
        let left = timeout(PATIENCE, self.remaining_pods()).await;
        lists.next = began + EVERY.max(began.elapsed() * REST);
        let outcome = match left {
            Ok(Ok(left)) => {
                lists.began = Some(began);
                self.release_all_but(&left, &known)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot ask which pods are left");
                RecheckOutcome::Unsure
            }
            Err(_) => RecheckOutcome::Unsure,
        };
        self.recheck_done(outcome);
    }

    /// Pods that the watch has shown as bound, one more than [`MOST`] at most.
    fn known_as_bound(&self) -> Vec<Arc<str>> {
        let state = self.state();
        let known = state.index.confirmed().filter(|pod| !state.unobserved_binds.contains(&***pod));
        known.take(MOST + 1).cloned().collect()
    }

    /// UIDs of the bound pods that have not ended, as is agreed at the moment of the question.
    async fn remaining_pods(&self) -> kube::Result<HashSet<String>> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut fields = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed".to_owned();
        if let Some(name) = &self.policy.scheduler_name {
            fields = format!("spec.schedulerName={name},{fields}");
        }
        let list = pods.list_metadata(&ListParams::default().fields(&fields)).await?;
        Ok(list.items.into_iter().filter_map(|pod| pod.metadata.uid).collect())
    }

    fn release_all_but(&self, left: &HashSet<String>, known: &[Arc<str>]) -> RecheckOutcome {
        let mut state = self.state();
        // Those that were bound since are not among the known, and who was known as bound and is not left has ended.
        let gone = known.iter().filter(|pod| !left.contains(&***pod));
        let mut outcome = RecheckOutcome::Nothing;
        for pod in gone {
            state.end_unobserved(pod);
            outcome = RecheckOutcome::Found;
        }
        outcome
    }
}
