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
use tokio::time::timeout;

use super::super::events::PodEvent;
use super::super::extender::{Extender, PlacementState};
use super::super::leadership::LeadershipState;
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
    Failed(String),
}

/// What to do about a victim now.
enum NextStep {
    Evict,
    /// It may become necessary: this replica reads the cluster, or the pod has room elsewhere and is not bound yet.
    Wait,
    /// The pod does not need the room any more, or this replica does not lead any more.
    Stop,
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
        if let Err(why) = self.nominate(pod, node).await {
            tracing::info!(why, pod = pod.title(), node, "evicted no pod: did not nominate the node");
            return;
        }
        for victim in victims {
            let mut delay = FIRST_DELAY;
            loop {
                match self.next_step(&preemptor) {
                    NextStep::Evict => match self.evict(&victim, pod).await {
                        Eviction::Done => break self.events.add(preempted(victim, &preemptor)),
                        Eviction::Gone => break,
                        Eviction::Failed(why) => {
                            tracing::warn!(why, victim = victim.name, "cannot evict a pod yet");
                        }
                    },
                    NextStep::Wait => {}
                    NextStep::Stop => return,
                }
                tokio::time::sleep(delay).await;
                delay = MAX_DELAY.min(delay * 2);
            }
        }
    }

    /// Evictions are necessary while the pod has a nomination or a proposal on the node, with victims that are still bound.
    fn next_step(&self, Preemptor { pod, demand, node }: &Preemptor) -> NextStep {
        let uid = pod.uid().unwrap_or_default();
        let state = self.state();
        let needs_victims = state.index.awaits_victims(uid, node, demand, |_| false);
        match self.leadership.state() {
            LeadershipState::Standby => NextStep::Stop,
            _ if !needs_victims => NextStep::Stop,
            LeadershipState::Active if state.index.reservations(uid).is_empty() => NextStep::Evict,
            LeadershipState::Active | LeadershipState::Syncing => NextStep::Wait,
        }
    }

    /// Fails if another pod has the name, or if the pod is gone, bound or being deleted.
    async fn nominate(&self, pod: &Pod, node: &str) -> Result<(), String> {
        let (namespace, name) = pod.path();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"nominatedNodeName": node}}));
        let parameters = PatchParams::default();
        match timeout(self.policy.bind_timeout, pods.patch_status(name, &parameters, &patch)).await {
            // The watch may not show this yet.
            Ok(Ok(now)) if now.node().is_some() => Err("the pod is bound".to_owned()),
            Ok(Ok(now)) if now.is_being_deleted() => Err("the pod is being deleted".to_owned()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(self.no_answer()),
        }
    }

    async fn evict(&self, victim: &Victim, preemptor: &Pod) -> Eviction {
        let request = mark_and_delete(&self.client, victim, preemptor);
        match timeout(self.policy.bind_timeout, request).await {
            Ok(Ok(())) => Eviction::Done,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Eviction::Gone,
            // Another pod has the name. A conflict of versions has the same code, and another text.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 && status.message.contains("UID") => {
                Eviction::Gone
            }
            Ok(Err(error)) => Eviction::Failed(error.to_string()),
            Err(_) => Eviction::Failed(self.no_answer()),
        }
    }

    fn no_answer(&self) -> String {
        format!("the API server did not answer within {:?}", self.policy.bind_timeout)
    }
}

fn preempted(victim: Victim, Preemptor { pod, node, .. }: &Preemptor) -> PodEvent {
    PodEvent {
        namespace: victim.namespace,
        name: victim.name,
        reason: "Preempted",
        text: format!("Preempted by pod {} on node {node}", pod.uid().unwrap_or_default()),
        uid: victim.uid,
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
