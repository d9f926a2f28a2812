//! Search for the cheapest set of pods whose end is enough.

use std::cmp::Reverse;
use std::sync::Arc;

use super::cost::{Cost, Disruptions};
use super::{Candidate, Preemptor};
use crate::gangs::Gangs;
use crate::gpu_state::GpuState;

/// All sets are compared up to this many candidates that need not be in each set: 256 sets. With more, candidates are
/// spared one by one.
const COMPARED: usize = 8;

/// The pods that may be evicted for one set of GPUs.
pub(super) struct Problem<'a> {
    /// The GPUs, with the pods that stay.
    pub(super) target: &'a [&'a GpuState],
    /// The gangs of the node without those of the candidates.
    pub(super) gangs: Gangs,
    /// In order of importance.
    pub(super) candidates: Vec<&'a Candidate<'a>>,
    pub(super) preemptor: &'a Preemptor<'a>,
}

/// Victims and their cost.
#[derive(Debug)]
pub(super) struct Set<'a> {
    pub(super) victims: Vec<&'a Candidate<'a>>,
    pub(super) cost: Cost,
}

impl<'a> Candidate<'a> {
    pub(super) fn priority(&self) -> i32 {
        self.reservation.demand.pod_priority
    }

    /// Key of kube-scheduler's `MoreImportantPod`: the more important pod has the smaller key.
    pub(super) fn importance(&self) -> (Reverse<i32>, i64, &'a Arc<str>) {
        (Reverse(self.priority()), self.facts.started, self.pod)
    }

    pub(super) fn is_on(&self, slot: &GpuState) -> bool {
        self.reservation.gpus.contains(&slot.uuid)
    }
}

/// The cheapest set that is enough. `None` if the end of all candidates is not.
pub(super) fn least_set<'a>(problem: &Problem<'a>) -> Option<Set<'a>> {
    let all = vec![true; problem.candidates.len()];
    if !problem.is_enough(&all) {
        return None;
    }
    // More pods never make less room. So a pod without which all others are not enough is in each set.
    let is_needed = |at: &usize| !problem.is_enough(&with(&all, *at, false));
    let (needed, others): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(is_needed);
    let is_comparable = others.len() <= COMPARED && 1 << others.len() <= problem.preemptor.checks_left.get();
    let victims =
        if is_comparable { problem.compared(&needed, &others)? } else { problem.spared(&needed, &others) };
    let victims: Vec<&Candidate<'_>> = problem.chosen(&victims).collect();
    Some(Set { cost: Cost::of(&victims, problem.preemptor.disruptions_allowed), victims })
}

fn with(set: &[bool], at: usize, is_victim: bool) -> Vec<bool> {
    set.iter().enumerate().map(|(place, before)| if place == at { is_victim } else { *before }).collect()
}

impl<'a> Problem<'a> {
    fn chosen(&self, victims: &[bool]) -> impl Iterator<Item = &'a Candidate<'a>> {
        self.candidates.iter().zip(victims).filter(|(_, is_victim)| **is_victim).map(|(one, _)| *one)
    }

    /// The best of all sets. A set is not looked at if a part of it is enough: the part costs less.
    fn compared(&self, needed: &[usize], others: &[usize]) -> Option<Vec<bool>> {
        let mut enough: Vec<u32> = Vec::new();
        let mut best: Option<(Cost, Vec<bool>)> = None;
        // The parts of a set have smaller numbers.
        for number in 0..1_u32 << others.len() {
            if enough.iter().any(|part| number & part == *part) {
                continue;
            }
            let is_chosen = |at: &usize| {
                others.iter().position(|other| other == at).is_some_and(|bit| number >> bit & 1 == 1)
            };
            let set: Vec<bool> =
                (0..self.candidates.len()).map(|at| needed.contains(&at) || is_chosen(&at)).collect();
            if !self.is_enough(&set) {
                continue;
            }
            enough.push(number);
            let cost = Cost::of(&self.chosen(&set).collect::<Vec<_>>(), self.preemptor.disruptions_allowed);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, set));
            }
        }
        best.map(|(_, set)| set)
    }

    /// All candidates, except those that can be spared: as kube-scheduler's `SelectVictimsOnNode` does, first those whose
    /// eviction would violate a budget, then the most important. Pods that are ending already are spared last.
    fn spared(&self, needed: &[usize], others: &[usize]) -> Vec<bool> {
        let mut used = Disruptions::new(self.preemptor.disruptions_allowed);
        // The needed pods end in any case: the others have what they leave of the budgets.
        let order = needed.iter().chain(others).filter_map(|at| Some((*at, *self.candidates.get(*at)?)));
        let mut order: Vec<(bool, bool, usize)> = order
            .map(|(at, one)| (one.facts.is_ending, one.facts.is_ending || !used.evict(&one.facts), at))
            .filter(|(_, _, at)| !needed.contains(at))
            .collect();
        order.sort_unstable();
        let mut victims = vec![true; self.candidates.len()];
        for (_, _, at) in order {
            let fewer = with(&victims, at, false);
            if self.is_enough(&fewer) {
                victims = fewer;
            }
        }
        victims
    }

    /// Whether the pod fits on the GPUs and its other needs are met when these candidates have ended.
    fn is_enough(&self, victims: &[bool]) -> bool {
        let checks = &self.preemptor.checks_left;
        checks.set(checks.get().saturating_sub(1));
        let mut staying = self.candidates.iter().zip(victims).filter(|(_, is_victim)| !**is_victim);
        if staying.any(|(one, _)| one.facts.is_required) {
            return false;
        }
        let freed = |resource: usize| {
            let amounts = self.chosen(victims).filter_map(|one| one.facts.frees.get(resource));
            amounts.fold(0, |sum: u64, amount| sum.saturating_add(*amount))
        };
        let mut needs = self.preemptor.needs.iter().enumerate();
        needs.all(|(resource, need)| freed(resource) >= *need)
            && self.target.iter().all(|slot| self.fits(slot, victims))
            && self.has_slot(victims)
    }

    /// Whether the pod's gang has a slot on the GPUs.
    fn has_slot(&self, victims: &[bool]) -> bool {
        let mut gangs = self.gangs.clone();
        for (one, _) in self.candidates.iter().zip(victims).filter(|(_, is_victim)| !**is_victim) {
            gangs.add(&one.reservation.gpus, &one.reservation.demand);
        }
        let gpus: Vec<Arc<str>> = self.target.iter().map(|slot| slot.uuid.clone()).collect();
        gangs.excess(&gpus, self.preemptor.demand).is_none()
    }

    fn fits(&self, slot: &GpuState, victims: &[bool]) -> bool {
        let staying =
            self.candidates.iter().zip(victims).filter(|(one, is_victim)| !**is_victim && one.is_on(slot));
        let used = staying
            .fold(slot.used.clone(), |used, (one, _)| used.and(&one.reservation.demand, slot.memory_bytes));
        slot.reason_with(&used, self.preemptor.demand).is_none()
    }
}
