//! Search for the cheapest set of pods whose end is enough.

use std::cmp::Reverse;
use std::sync::Arc;

use super::cost::Cost;
use super::{Candidate, Preemptor};
use crate::gpu_state::GpuState;

/// All sets are compared up to this many candidates: 4,096 sets. With more, candidates are spared one by one.
const COMPARED: usize = 12;

/// The pods that may be evicted for one set of GPUs.
pub(super) struct Problem<'a> {
    /// The GPUs, with the pods that stay.
    pub(super) target: &'a [&'a GpuState],
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
    let victims =
        if problem.candidates.len() <= COMPARED { problem.compared()? } else { problem.spared()? };
    let victims: Vec<&Candidate<'_>> = problem.chosen(&victims).collect();
    Some(Set { cost: problem.cost(&victims), victims })
}

impl<'a> Problem<'a> {
    fn chosen(&self, victims: &[bool]) -> impl Iterator<Item = &'a Candidate<'a>> {
        self.candidates.iter().zip(victims).filter(|(_, is_victim)| **is_victim).map(|(one, _)| *one)
    }

    fn cost(&self, victims: &[&Candidate<'_>]) -> Cost {
        Cost::of(victims, self.preemptor.disruptions_allowed)
    }

    /// The best of all sets. A set is not looked at if a part of it is enough: the part costs less.
    fn compared(&self) -> Option<Vec<bool>> {
        let count = self.candidates.len();
        let mut enough: Vec<u32> = Vec::new();
        let mut best: Option<(Cost, Vec<bool>)> = None;
        // The parts of a set have smaller numbers.
        for number in 0..1_u32 << count {
            if enough.iter().any(|part| number & part == *part) {
                continue;
            }
            let set: Vec<bool> = (0..count).map(|bit| number >> bit & 1 == 1).collect();
            if !self.is_enough(&set) {
                continue;
            }
            enough.push(number);
            let cost = self.cost(&self.chosen(&set).collect::<Vec<_>>());
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, set));
            }
        }
        best.map(|(_, set)| set)
    }

    /// All candidates, except those that can be spared: as kube-scheduler's `SelectVictimsOnNode` does, first those whose
    /// eviction would violate a budget, then the most important. Pods that are ending already are spared last.
    fn spared(&self) -> Option<Vec<bool>> {
        let mut victims = vec![true; self.candidates.len()];
        if !self.is_enough(&victims) {
            return None;
        }
        let mut order: Vec<(usize, &Candidate<'_>)> = self.candidates.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, one)| (one.facts.is_ending, Reverse(self.cost(&[one]).violations)));
        for (at, _) in order {
            if let Some(victim) = victims.get_mut(at) {
                *victim = false;
            }
            if !self.is_enough(&victims)
                && let Some(victim) = victims.get_mut(at)
            {
                *victim = true;
            }
        }
        Some(victims)
    }

    /// Whether the pod fits on the GPUs and its other needs are met when these candidates have ended.
    fn is_enough(&self, victims: &[bool]) -> bool {
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
    }

    fn fits(&self, slot: &GpuState, victims: &[bool]) -> bool {
        let staying =
            self.candidates.iter().zip(victims).filter(|(one, is_victim)| !**is_victim && one.is_on(slot));
        let used =
            staying.fold(slot.used, |used, (one, _)| used.and(&one.reservation.demand, slot.memory_bytes));
        slot.reason_with(&used, self.preemptor.demand).is_none()
    }
}
