//! Preempt: corrects the victims that kube-scheduler has chosen, GPU by GPU.
//!
//! kube-scheduler chooses victims by the sums of a node (processors, memory, slots, thousandths of GPUs). It does not know
//! which GPU each pod has: its victims may be on different GPUs, where their end helps nothing. The answer contains the
//! victims that make room on one GPU (or on as many whole ones as the pod asks for), and still meets the pod's other
//! needs. A node where no eviction helps is left out, so no pod is evicted in vain.

use std::collections::BTreeMap;

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_placement::ProposedNode;

use super::extender::Extender;
use super::filter::demand_of;
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::objects::Pod;
use super::wire::{ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaVictims};
use search::Search;

mod evict;
mod search;

impl Extender {
    /// Answers preempt. The room of the victims is kept for the pod on each node of the answer, until kube-scheduler has
    /// nominated one of them.
    pub(crate) fn preempt(
        &self,
        args: ExtenderPreemptionArgs,
    ) -> Result<ExtenderPreemptionResult, (Outcome, String)> {
        if self.leadership.state() != LeadershipState::Active {
            return Err((Outcome::Inactive, "Sluice's extender is not active".to_owned()));
        }
        let proposals = args.node_name_to_meta_victims.ok_or_else(|| {
            (Outcome::Error, "the extender's configuration lacks `nodeCacheCapable: true`".to_owned())
        })?;
        let demand = demand_of(&args.pod).map_err(|mistake| (Outcome::Invalid, mistake))?;
        self.expire();
        let mut state = self.state();
        state.place_nominated();
        let uid = args.pod.uid().unwrap_or_default();
        // kube-scheduler's copy of the pod may be older than its nomination.
        let known = state.index.nominated_node(uid).cloned();
        let nominated = args.pod.nominated_node().or(known.as_deref());
        if nominated.is_none() && state.index.has_proposals(uid) {
            // It has chosen one of the nodes, and the watch does not show yet which: a second choice might differ.
            return Ok(ExtenderPreemptionResult::default());
        }
        let keeps = nominated.filter(|node| state.keeps_nomination(&args.pod, node, &demand));
        // kube-scheduler may ask again before it has seen the deletion of the victims: the pod stays with its node. If the
        // node is away, for example while its agent restarts, the pod waits for it before it evicts on another.
        let (now, end) = (self.clock.now_ns(), self.clock.in_ns(self.policy.reservation));
        let stays = keeps
            .filter(|node| proposals.contains_key(*node) || state.index.waits_for_node(uid, node, now, end));
        let Some(search) = Search::new(&state, &args.pod, &demand) else {
            return Err((Outcome::Inactive, "the PodDisruptionBudgets have not been listed yet".to_owned()));
        };
        let proposals = proposals.iter().filter(|(node, _)| stays.is_none_or(|stays| stays == *node));
        let found = proposals.filter_map(|(node, proposed)| {
            let (kept, victims) = search.on_node(node, proposed)?;
            Some((kept, (node.clone(), victims)))
        });
        let (kept, answers): (Vec<ProposedNode>, BTreeMap<String, MetaVictims>) = found.unzip();
        if !answers.is_empty() {
            state.refused.remove(uid);
        }
        state.index.propose_nominations(uid, &demand, kept, end);
        drop(state);
        if answers.is_empty() && args.pod.nominated_node().is_some() && keeps.is_none() {
            tokio::spawn(clear_nomination(self.client.clone(), args.pod));
        }
        Ok(ExtenderPreemptionResult { node_name_to_meta_victims: answers })
    }
}

/// Clears the nomination of a pod that cannot have its room any more: a pod of a higher priority took it.
///
/// kube-scheduler keeps a nomination after an answer without victims, and counts the pod on that node. Pods of the same or
/// a lower priority that fit there would wait as long as it waits.
pub(super) async fn clear_nomination(client: kube::Client, pod: Pod) {
    let (namespace, name) = pod.path();
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    // The API server refuses the patch if another pod has the name, or if kube-scheduler has chosen another node since.
    let cleared = json!([
        {"op": "test", "path": "/metadata/uid", "value": pod.uid()},
        {"op": "test", "path": "/status/nominatedNodeName", "value": pod.nominated_node()},
        {"op": "remove", "path": "/status/nominatedNodeName"},
    ]);
    let result = match serde_json::from_value(cleared) {
        Ok(patch) => {
            let patch = Patch::<()>::Json(patch);
            pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
        }
        Err(error) => Err(kube::Error::SerdeError(error)),
    };
    if let Err(error) = result {
        tracing::info!(%error, pod = pod.title(), "did not clear a nomination");
    }
}
