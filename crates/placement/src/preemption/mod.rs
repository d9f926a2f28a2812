//! Choice of the pods to evict from a node so that a pod of a higher PriorityClass fits on its GPUs.
//!
//! kube-scheduler chooses victims by the sums of a node, and does not know which GPU each pod has. This module chooses
//! them for each GPU, and compares sets of victims as kube-scheduler compares nodes ([`cost`]). It evicts no pod of the
//! same or a higher priority, and no pod that need not end.

mod cost;
mod search;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use crate::Index;
use crate::demand::{Demand, PreparedDemand};
use crate::gpu_state::GpuState;
use crate::node::Node;
use crate::outcome::Reservation;
use crate::ranking::{COMPARED_GPUS, combinations};
use search::{Problem, Set, least_set};

pub use cost::Cost;

/// What the caller knows of a bound pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evictable {
    /// When it started, on any clock that all pods share.
    pub started: i64,
    /// It is being deleted: it ends without an eviction.
    pub is_ending: bool,
    /// It must be among the victims: kube-scheduler needs its end for a reason that the caller cannot check.
    pub is_required: bool,
    /// Its end may help to meet the needs, on whichever GPU it is.
    pub is_proposed: bool,
    /// Positions of its disruption budgets in [`Preemptor::disruptions_allowed`].
    pub budgets: Vec<usize>,
    /// What its end frees of each of [`Preemptor::needs`].
    pub frees: Vec<u64>,
}

/// The pod that needs room.
#[derive(Debug, Clone, Copy)]
pub struct Preemptor<'a> {
    /// Its UID.
    pub pod: &'a str,
    /// Its demand.
    pub demand: &'a Demand,
    /// Disruptions that each disruption budget still allows.
    pub disruptions_allowed: &'a [i32],
    /// What the victims have to free together, beside GPUs. The caller numbers the resources.
    pub needs: &'a [u64],
    /// How many sets of pods are checked before the search becomes less thorough: it then spares victims one by one,
    /// and looks for no better set of several GPUs. The search counts it down; the nodes of a call share it.
    pub checks_left: &'a Cell<usize>,
}

/// The pods to evict from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victims {
    /// UIDs, the most important first. Empty if the pod fits without an eviction.
    pub pods: Vec<Arc<str>>,
    /// UUIDs of the GPUs that become free for the pod.
    pub gpus: Vec<Arc<str>>,
    /// Number of evictions that a disruption budget does not allow.
    pub violations: u32,
    /// What the evictions cost, beside those on other nodes.
    pub cost: Cost,
}

/// A pod that may be evicted, with its reservation.
#[derive(Debug, Clone)]
struct Candidate<'a> {
    pod: &'a Arc<str>,
    reservation: &'a Reservation,
    facts: Evictable,
}

impl Index {
    /// The best set of pods to evict from the node, so that the pod fits there. `None` if no set is enough.
    ///
    /// `evictable` returns the facts of a bound pod, or `None` if it must stay. Pods of the same or a higher priority
    /// stay always, as do pods that are not bound yet.
    pub fn victims(
        &self,
        node: &str,
        preemptor: &Preemptor<'_>,
        evictable: impl Fn(&str) -> Option<Evictable>,
    ) -> Option<Victims> {
        let demand = preemptor.demand;
        let (name, place) = self.nodes.get_key_value(node)?;
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for pod in place.pods.iter().filter(|pod| ***pod != *preemptor.pod) {
            let here = self.reservations(pod).iter().find(|reservation| reservation.node == *name);
            let lower =
                here.filter(|one| one.is_confirmed() && one.demand.pod_priority < demand.pod_priority);
            if let Some((reservation, facts)) = lower.and_then(|one| Some((one, evictable(pod)?))) {
                candidates.push(Candidate { pod, reservation, facts });
            }
        }
        candidates.sort_by_key(Candidate::importance);
        let is_candidate = |pod: &str| pod == preemptor.pod || candidates.iter().any(|one| **one.pod == *pod);
        let cleared = Cow::Owned(self.node_without(name, place, is_candidate));
        let cleared = self.with_nominated(name, place, preemptor.pod, demand.pod_priority, cleared);
        let targets = targets(&cleared, preemptor, &candidates);
        let mut best: Option<(Set<'_>, &[&GpuState])> = None;
        for target in &targets {
            if best.is_some() && demand.gpus > 1 && preemptor.checks_left.get() == 0 {
                break;
            }
            if let Some(set) = least_set(&problem(&cleared, target, &candidates, preemptor))
                && best.as_ref().is_none_or(|(least, _)| set.cost < least.cost)
            {
                best = Some((set, target));
            }
        }
        let (set, target) = best?;
        Some(Victims {
            pods: set.victims.iter().map(|one| one.pod.clone()).collect(),
            gpus: target.iter().map(|slot| slot.uuid.clone()).collect(),
            violations: set.cost.violations,
            cost: set.cost,
        })
    }
}

/// The victims for these GPUs are among the pods on them, and those that are proposed for other needs.
fn problem<'a>(
    cleared: &Node,
    target: &'a [&'a GpuState],
    candidates: &'a [Candidate<'a>],
    preemptor: &'a Preemptor<'a>,
) -> Problem<'a> {
    let is_relevant = |one: &&Candidate<'_>| {
        one.facts.is_required || one.facts.is_proposed || target.iter().any(|slot| one.is_on(slot))
    };
    let (relevant, others): (Vec<_>, Vec<_>) = candidates.iter().partition(is_relevant);
    let mut gangs = cleared.gangs().clone();
    for other in others {
        gangs.add(&other.reservation.gpus, &other.reservation.demand);
    }
    Problem { target, gangs, candidates: relevant, preemptor }
}

/// The sets of GPUs that could take the pod if all candidates ended. Of sets of several GPUs the first is cheap.
fn targets<'a>(
    cleared: &'a Node,
    preemptor: &Preemptor<'_>,
    candidates: &[Candidate<'_>],
) -> Vec<Vec<&'a GpuState>> {
    let prepared = PreparedDemand::new(preemptor.demand);
    let slots = cleared.slots().iter();
    let slots =
        slots.filter(|slot| slot.is_selected(&prepared) && slot.reason_against(preemptor.demand).is_none());
    let mut slots: Vec<&GpuState> = slots.collect();
    let count = preemptor.demand.gpus as usize;
    if count > 1 {
        // All of them fit the pod when all candidates have ended, but other needs may not be met: such a GPU comes last.
        slots.sort_by_cached_key(|slot| {
            let alone = least_set(&problem(cleared, std::slice::from_ref(slot), candidates, preemptor));
            alone.map_or((true, None), |set| (false, Some(set.cost)))
        });
        slots.truncate(COMPARED_GPUS.max(count));
    }
    combinations(&slots, count)
}
