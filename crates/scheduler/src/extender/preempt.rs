//! Preempt: corrects the victims that kube-scheduler has chosen, GPU by GPU.
//!
//! kube-scheduler chooses victims by the sums of a node (processors, memory, slots, thousandths of GPUs). It does not know
//! which GPU each pod has: its victims may be on different GPUs, where their end helps nothing. The answer contains the
//! victims that make room on one GPU (or on as many whole ones as the pod asks for), and still meets the pod's other
//! needs. A node where no eviction helps is left out, so no pod is evicted in vain.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_placement::annotations::keys;
use sluice_placement::{Demand, Evictable, Preemptor, ProposedNode, Reservation, ReservationState};

use super::extender::{Extender, PlacementState};
use super::filter::demand_of;
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::objects::{Budget, Pod};
use super::wire::{ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims};

/// Resources that need no comparison of sums: a pod that fits on a GPU fits into the node's sum of the GPUs.
const COUNTED_PER_GPU: [&str; 2] = [keys::MILLI, keys::MEMORY_MIB];

/// Sets of pods that a call checks at most before its search becomes less thorough: milliseconds, under the lock.
const CHECKS: usize = 10_000;

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
        let Some(search) = Search::new(&state, &args.pod, &demand) else {
            return Err((Outcome::Inactive, "the PodDisruptionBudgets have not been listed yet".to_owned()));
        };
        let nominated = args.pod.nominated_node();
        let waits = nominated.is_some_and(|node| state.awaits_victims(&args.pod, node, &demand));
        // kube-scheduler may ask again before it has seen the deletion of the victims: the pod stays with its node, unless
        // kube-scheduler does not propose that node any more.
        let stays = nominated.filter(|node| waits && proposals.contains_key(*node));
        let proposals = proposals.iter().filter(|(node, _)| stays.is_none_or(|stays| stays == *node));
        let found = proposals.filter_map(|(node, proposed)| {
            let (kept, victims) = search.on_node(node, proposed)?;
            Some((kept, (node.clone(), victims)))
        });
        let (kept, answers): (Vec<ProposedNode>, BTreeMap<String, MetaVictims>) = found.unzip();
        let deadline = self.clock.in_ns(self.policy.reservation);
        state.index.propose_nominations(args.pod.uid().unwrap_or_default(), &demand, kept, deadline);
        drop(state);
        if answers.is_empty() && nominated.is_some() && !waits {
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

/// The search for the victims of one pod.
struct Search<'a> {
    state: &'a PlacementState,
    uid: &'a str,
    demand: &'a Demand,
    budgets: Vec<&'a Budget>,
    disruptions_allowed: Vec<i32>,
    checks_left: Cell<usize>,
    /// What the pod requests beside the amounts of a GPU.
    requests: BTreeMap<String, u64>,
    /// The stock scheduler may need victims for reasons that the requests do not show.
    has_uncounted_needs: bool,
    /// The pod may need pods on the node that kube-scheduler does not propose.
    needs_other_pods: bool,
}

impl<'a> Search<'a> {
    /// `None` before the first list of disruption budgets.
    fn new(state: &'a PlacementState, pod: &'a Pod, demand: &'a Demand) -> Option<Self> {
        let budgets: Vec<&Budget> = state.budgets.as_ref()?.values().collect();
        let mut requests = pod.spec().requests();
        requests.retain(|resource, _| !COUNTED_PER_GPU.contains(&resource.as_str()));
        Some(Self {
            state,
            uid: pod.uid().unwrap_or_default(),
            demand,
            disruptions_allowed: budgets.iter().map(|budget| budget.disruptions_allowed()).collect(),
            budgets,
            checks_left: Cell::new(CHECKS),
            requests,
            has_uncounted_needs: pod.spec().has_uncounted_needs(),
            needs_other_pods: pod.spec().has_required_pod_affinity(),
        })
    }

    /// The victims on a node, and the room that they leave. `None` if no eviction there makes the pod fit.
    fn on_node(&self, node: &str, proposed: &MetaVictims) -> Option<(ProposedNode, MetaVictims)> {
        let proposed_pods: Vec<&str> = proposed.pods.iter().flatten().map(|pod| &*pod.uid).collect();
        let (evictable, others): (Vec<&str>, Vec<&str>) =
            proposed_pods.iter().partition(|uid| self.importance(uid).is_some());
        // It has a GPU, but the watch has not shown it yet as bound. Its eviction might be in vain.
        if others.iter().any(|uid| !self.state.index.reservations(uid).is_empty()) {
            return None;
        }
        let freed = |resource: &String| -> u64 {
            let occupants = evictable.iter().filter_map(|uid| self.state.occupants.get(*uid));
            let amounts = occupants.filter_map(|one| one.requests.get(resource));
            amounts.fold(0, |sum, amount| sum.saturating_add(*amount))
        };
        // The proposed pods free enough. Other pods do so too if they free as much, or as much as the pod requests.
        let needs: Vec<u64> =
            self.requests.iter().map(|(resource, request)| freed(resource).min(*request)).collect();
        let preemptor = Preemptor {
            pod: self.uid,
            demand: self.demand,
            disruptions_allowed: &self.disruptions_allowed,
            needs: &needs,
            checks_left: &self.checks_left,
        };
        let facts = |uid: &str| self.facts(uid, proposed_pods.contains(&uid));
        let victims = self.state.index.victims(node, &preemptor, facts)?;
        let pods = self.in_order(&victims.pods, &proposed_pods);
        if pods.is_empty() {
            return None;
        }
        // Any of the proposed violations may be of the other pods.
        let of_others = proposed.violations.clamp(0, i64::try_from(others.len()).unwrap_or(i64::MAX));
        let violations = of_others + i64::from(victims.violations);
        let kept = ProposedNode { node: node.into(), gpus: victims.gpus, victims: victims.pods };
        Some((kept, MetaVictims { pods: Some(pods), violations }))
    }

    /// The victims and the proposed pods without a GPU in one order of importance. kube-scheduler takes the priority of
    /// the first one for the highest.
    ///
    /// Both lists are in this order. The importance of a pod without a GPU is not known: it follows the victims that are
    /// at least as important as a pod that it follows in the proposal.
    fn in_order(&self, victims: &[Arc<str>], proposed: &[&str]) -> Vec<MetaPod> {
        let mut victims = victims.iter().map(|uid| &**uid).peekable();
        let mut ordered: Vec<&str> = Vec::new();
        for uid in proposed {
            match self.importance(uid) {
                Some(least) => ordered.extend(iter::from_fn(|| {
                    victims.next_if(|victim| self.importance(victim).is_some_and(|one| one <= least))
                })),
                None => ordered.push(uid),
            }
        }
        let uids = ordered.into_iter().chain(victims);
        uids.map(|uid| MetaPod { uid: uid.to_owned() }).collect()
    }

    /// Key of kube-scheduler's `MoreImportantPod`: the more important pod has the smaller key. `None` if the pod is not
    /// bound to GPUs, or has no lower priority.
    fn importance<'u>(&self, uid: &'u str) -> Option<(Reverse<i32>, i64, &'u str)> {
        let mut reservations = self.state.index.reservations(uid).iter();
        let is_lower = |one: &&Reservation| {
            one.state == ReservationState::Confirmed && one.demand.pod_priority < self.demand.pod_priority
        };
        let priority = reservations.find(is_lower)?.demand.pod_priority;
        Some((Reverse(priority), self.state.occupants.get(uid)?.started, uid))
    }

    fn facts(&self, uid: &str, is_proposed: bool) -> Option<Evictable> {
        let occupant = self.state.occupants.get(uid)?;
        if self.needs_other_pods && !is_proposed {
            return None;
        }
        let protects =
            |budget: &Budget| budget.protects(&occupant.namespace, &occupant.name, &occupant.labels);
        let budgets = self.budgets.iter().enumerate().filter(|(_, budget)| protects(budget));
        let frees =
            self.requests.keys().map(|resource| occupant.requests.get(resource).copied().unwrap_or(0));
        Some(Evictable {
            started: occupant.started,
            is_ending: self.state.deleting.contains_key(uid),
            is_required: is_proposed && (self.has_uncounted_needs || occupant.has_uncounted_needs),
            is_proposed,
            budgets: budgets.map(|(at, _)| at).collect(),
            frees: frees.collect(),
        })
    }
}
