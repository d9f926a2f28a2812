//! Scale-up pods: what a cluster's autoscaler sees of pods for which no single GPU has room.
//!
//! An autoscaler simulates kube-scheduler's filters and calls no extender. If eight GPUs have 0.2 free each, it counts 1.6, finds that a
//! waiting pod of 0.5 fits, and adds no node. So the extender creates a second pod for it, which fits only on a node without pods with GPUs,
//! and which no scheduler binds. The extender deletes it when the first one has its GPUs, or was not refused again.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::extender::Extender;
use super::leadership::LeadershipState;
use spec::{UID_LABEL, scale_up_pod};

mod refusals;
mod spec;

pub(crate) use refusals::Refusals;

/// Interval between two comparisons of the scale-up pods with the pods that need them. Cluster Autoscaler looks every 10 s.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long a comparison may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Scale-up pods at a time. One new node serves several of them.
const MOST: usize = 100;

/// Scale-up pods at a time for waiting pods of one namespace, so that no namespace takes the places of all others.
const MOST_OF_NAMESPACE: usize = 10;

/// The namespace of the scale-up pods, and the pod of the extender, with which they end.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) namespace: String,
    pub(crate) owner: OwnerReference,
}

impl Home {
    /// The namespace of the extender's own pod.
    pub(crate) async fn find(client: &kube::Client, namespace: &str, pod_name: &str) -> kube::Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let own = pods.get(pod_name).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod_name.to_owned(),
            uid: own.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(Self { namespace: namespace.to_owned(), owner })
    }
}

impl Extender {
    /// Keeps a scale-up pod for each pod that needs one, as long as it is polled.
    pub(crate) async fn keep_scale_up_pods(&self, namespace: &str, pod_name: &str) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut home = None;
        loop {
            ticks.tick().await;
            if self.leadership.state() != LeadershipState::Active {
                continue;
            }
            let compare = async {
                let home = match &mut home {
                    Some(home) => home,
                    unknown => unknown.insert(Home::find(&self.client, namespace, pod_name).await?),
                };
                self.update_scale_up_pods(home).await
            };
            match timeout(TIMEOUT, compare).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, namespace, "cannot update the scale-up pods"),
                Err(_) => tracing::warn!(
                    namespace,
                    "the API server did not answer about scale-up pods within {TIMEOUT:?}"
                ),
            }
        }
    }

    /// Deletes the scale-up pods that are not needed any more, and creates those that are missing. A request that fails is made again by the
    /// next comparison, and keeps no other from being made.
    pub(crate) async fn update_scale_up_pods(&self, home: &Home) -> kube::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &home.namespace);
        let existing = pods.list(&ListParams::default().match_any().labels(UID_LABEL)).await?;
        let needed = self.pods_without_room();
        // Namespace by UID of the waiting pods that have a scale-up pod.
        let mut served: BTreeMap<&str, &str> = BTreeMap::new();
        let has_place = |served: &BTreeMap<&str, &str>, namespace: &str| {
            let of_namespace = served.values().filter(|one| **one == namespace).count();
            served.len() < MOST && of_namespace < MOST_OF_NAMESPACE
        };
        for pod in existing.items {
            let uid = pod.metadata.labels.as_ref().and_then(|labels| labels.get(UID_LABEL));
            let waiting = uid.and_then(|uid| needed.get_key_value(uid));
            match waiting.filter(|(_, (namespace, _))| has_place(&served, namespace)) {
                Some((uid, (namespace, _))) => {
                    served.insert(uid, namespace);
                    report("marked", &pod, mark(&pods, &pod).await);
                }
                None => report("deleted", &pod, delete(&pods, &pod).await),
            }
        }
        for (uid, (namespace, name)) in &needed {
            if served.contains_key(uid.as_str()) || !has_place(&served, namespace) {
                continue;
            }
            match self.create_scale_up_pod(&pods, home, uid, (namespace, name)).await {
                Ok(true) => {
                    served.insert(uid, namespace);
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, namespace, name, "no scale-up pod was created for the pod")
                }
            }
        }
        Ok(())
    }

    /// Creates the scale-up pod of a waiting pod, unless that has ended or has a node. Returns whether there is a scale-up pod now.
    async fn create_scale_up_pod(
        &self,
        pods: &Api<Pod>,
        home: &Home,
        uid: &str,
        (namespace, name): (&str, &str),
    ) -> kube::Result<bool> {
        let all: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let Some(waiting) = all.get_opt(name).await? else { return Ok(false) };
        let is_bound = waiting.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if waiting.metadata.uid.as_deref() != Some(uid) || is_bound {
            return Ok(false);
        }
        match pods.create(&PostParams::default(), &scale_up_pod(&waiting, home)).await {
            Ok(created) => {
                report("created", &created, Ok(()));
                report("marked", &created, mark(pods, &created).await);
                Ok(true)
            }
            Err(error) => ignore(Err(error), &[409]).map(|()| true),
        }
    }

    /// Namespace and name by UID of the pods that need a scale-up pod.
    fn pods_without_room(&self) -> BTreeMap<String, (String, String)> {
        let state = self.state();
        let index = &state.index;
        // A pod that has evicted others waits for their room.
        let has_room = |uid: &str| {
            !index.reservations(uid).is_empty()
                || index.nominated_node(uid).is_some()
                || index.has_proposals(uid)
        };
        let refused = state.refusals.lasting(self.clock.now_ns(), self.policy.scale_up_after);
        refused.into_iter().filter(|(uid, _)| !has_room(uid)).collect()
    }
}

async fn delete(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = pods.delete(pod.metadata.name.as_deref().unwrap_or_default(), &parameters).await;
    ignore(deleted.map(drop), &[404, 409])
}

/// Marks the pod as a scheduler marks one that it cannot place, unless it is marked: autoscalers consider only such pods.
async fn mark(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if conditions.into_iter().any(|condition| condition.type_ == "PodScheduled") {
        return Ok(());
    }
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "no scheduler binds this pod: it asks the autoscaler for a node, in place of the pod in its annotations",
        "lastTransitionTime": Timestamp::now(),
    });
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let marked = pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    ignore(marked.map(drop), &[404])
}

fn report(done: &'static str, pod: &Pod, result: kube::Result<()>) {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match result {
        Ok(()) => tracing::debug!(name, done, "scale-up pod"),
        Err(error) => tracing::warn!(%error, name, "scale-up pod was not {done}"),
    }
}

/// An answer with one of these codes means that another request has done the same.
fn ignore(result: kube::Result<()>, codes: &[u16]) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if codes.contains(&status.code) => Ok(()),
        result => result,
    }
}
