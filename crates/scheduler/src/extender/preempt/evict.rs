//! Evictions by the extender itself, for a pod that fits into the sums of a node and on none of its GPUs.
//!
//! kube-scheduler finds no victims there: without any eviction the sums have room (`SelectVictimsOnNode`, read in 1.34.4).
//! So the extender does what kube-scheduler does: it nominates the node, then marks and deletes the victims. From then on
//! kube-scheduler counts the pod on the node, waits for the victims, and evicts no others.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use sluice_placement::{Demand, ProposedNode};

use super::super::events::PodEvent;
use super::super::extender::{Extender, PlacementState};
use super::super::metrics::Outcome;
use super::super::objects::Pod;
use super::search::Search;

/// Delay before an eviction that has failed is repeated. It doubles up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A pod that needs the evictions, and the node of its victims.
struct Preemptor {
    pod: Pod,
    demand: Demand,
    node: String,
}

/// A pod to evict.
struct Victim {
    namespace: String,
    name: String,
    uid: String,
}

/// Result of one attempt to evict a pod.
enum Eviction {
    /// The pod ends.
    Done,
    /// The pod has ended already.
    Gone,
    /// The pod may still run.
    Failed(kube::Error),
}

impl Extender {
    /// Filter has refused the pod on these nodes, which pass kube-scheduler's own filters. Evicts pods of lower priorities
    /// where that makes room on a GPU.
    ///
    /// The first refusal in a row evicts none: in the same cycle kube-scheduler may evict pods on other nodes.
    pub(crate) fn evict_for_refused<'n>(
        self: &Arc<Self>,
        pod: &Pod,
        demand: &Demand,
        nodes: impl Iterator<Item = &'n str>,
    ) {
        let uid = pod.uid().unwrap_or_default();
        let mut state = self.state();
        let is_nominated = pod.nominated_node().is_some() || state.index.nominated_node(uid).is_some();
        if is_nominated || state.index.has_proposals(uid) || !pod.spec().may_preempt() {
            return;
        }
        if state.refused.insert(uid.to_owned()) {
            return;
        }
        state.refused.remove(uid);
        let best = Search::new(&state, pod, demand).and_then(|search| search.best_node(nodes));
        let Some(best) = best else { return };
        let victims = victims(&state, &best);
        let deadline = self.clock.in_ns(self.policy.reservation);
        let node = best.node.to_string();
        state.index.propose_nominations(uid, demand, vec![best], deadline);
        drop(state);
        self.metrics.record_preemption(Outcome::Evicted);
        let preemptor = Preemptor { pod: pod.clone(), demand: demand.clone(), node };
        tokio::spawn(Arc::clone(self).evict_all(preemptor, victims));
    }

    /// Evicts the victims one after the other. Each eviction is repeated until the victim ends: the end of some of them alone
    /// makes no room.
    async fn evict_all(self: Arc<Self>, preemptor: Preemptor, victims: Vec<Victim>) {
        let Preemptor { pod, node, .. } = &preemptor;
        if let Err(error) = nominate(&self.client, pod, node).await {
            tracing::info!(%error, pod = pod.title(), node, "evicted no pod: cannot nominate the node");
            return;
        }
        for victim in victims {
            let mut delay = FIRST_DELAY;
            while self.needs_victims(&preemptor) {
                match evict(&self.client, &victim, pod).await {
                    Eviction::Done => {
                        self.events.add(PodEvent {
                            namespace: victim.namespace,
                            name: victim.name,
                            reason: "Preempted",
                            text: format!(
                                "Preempted by pod {} on node {node}",
                                pod.uid().unwrap_or_default()
                            ),
                            uid: victim.uid,
                        });
                        break;
                    }
                    Eviction::Gone => break,
                    Eviction::Failed(error) => {
                        tracing::warn!(%error, victim = victim.name, "cannot evict a pod yet");
                    }
                }
                tokio::time::sleep(delay).await;
                delay = MAX_DELAY.min(delay * 2);
            }
        }
    }

    /// Whether the pod still has a nomination or a proposal on the node, with victims that are still bound.
    fn needs_victims(&self, Preemptor { pod, demand, node }: &Preemptor) -> bool {
        let uid = pod.uid().unwrap_or_default();
        self.state().index.awaits_victims(uid, node, demand, |_| false)
    }
}

/// The victims that are not ending already.
fn victims(state: &PlacementState, best: &ProposedNode) -> Vec<Victim> {
    let evicted = best.victims.iter().filter(|uid| !state.deleting.contains_key(&***uid));
    let victim = |uid: &std::sync::Arc<str>| {
        let occupant = state.occupants.get(&**uid)?;
        let (namespace, name) = (occupant.namespace.clone(), occupant.name.clone());
        Some(Victim { namespace, name, uid: uid.to_string() })
    };
    evicted.filter_map(victim).collect()
}

/// Fails if another pod has the name, or if the pod is gone.
async fn nominate(client: &kube::Client, pod: &Pod, node: &str) -> kube::Result<()> {
    let (namespace, name) = pod.path();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"nominatedNodeName": node}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
}

async fn evict(client: &kube::Client, victim: &Victim, preemptor: &Pod) -> Eviction {
    match mark_and_delete(client, victim, preemptor).await {
        Ok(()) => Eviction::Done,
        Err(kube::Error::Api(status)) if status.code == 404 => Eviction::Gone,
        // Another pod has the name. A conflict of versions has the same code, and another text.
        Err(kube::Error::Api(status)) if status.code == 409 && status.message.contains("UID") => {
            Eviction::Gone
        }
        Err(error) => Eviction::Failed(error),
    }
}

/// The condition tells kube-scheduler and controllers why the pod ends, as after kube-scheduler's own evictions.
async fn mark_and_delete(client: &kube::Client, victim: &Victim, preemptor: &Pod) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &victim.namespace);
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("preempted to make room on a GPU for {}", preemptor.title()),
        "lastTransitionTime": Timestamp::now(),
    });
    let patch = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
    pods.patch_status(&victim.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let preconditions = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    pods.delete(&victim.name, &parameters).await.map(drop)
}
