//! Victims on one node: kube-scheduler's proposal, corrected GPU by GPU.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use sluice_placement::annotations::keys;
use sluice_placement::{Demand, Evictable, Preemptor, ProposedNode, Reservation, ReservationState};

use super::super::extender::PlacementState;
use super::super::objects::{Budget, Pod};
use super::super::wire::{MetaPod, MetaVictims};

/// Resources that need no comparison of sums: a pod that fits on a GPU fits into the node's sum of the GPUs.
const COUNTED_PER_GPU: [&str; 3] = keys::RESOURCES;

/// Sets of pods that a call checks at most before its search becomes less thorough: milliseconds, under the lock.
const CHECKS: usize = 10_000;

/// The search for the victims of one pod.
pub(super) struct Search<'a> {
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
    pub(super) fn new(state: &'a PlacementState, pod: &'a Pod, demand: &'a Demand) -> Option<Self> {
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
    pub(super) fn on_node(&self, node: &str, proposed: &MetaVictims) -> Option<(ProposedNode, MetaVictims)> {
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

    /// The node of these where the cheapest evictions make room on a GPU. `None` if there is none, or if the pod fits on one
    /// without an eviction. All of the pod's other needs are met on the nodes.
    pub(super) fn best_node<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> Option<ProposedNode> {
        let preemptor = Preemptor {
            pod: self.uid,
            demand: self.demand,
            disruptions_allowed: &self.disruptions_allowed,
            needs: &[],
            checks_left: &self.checks_left,
        };
        let facts = |uid: &str| self.facts(uid, false);
        let found = nodes.filter_map(|node| Some((self.state.index.victims(node, &preemptor, facts)?, node)));
        let (victims, node) = found.min_by(|(one, _), (other, _)| one.cost.cmp(&other.cost))?;
        let is_eviction = !victims.pods.is_empty();
        is_eviction.then(|| ProposedNode { node: node.into(), gpus: victims.gpus, victims: victims.pods })
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
