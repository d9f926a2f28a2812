//! Victims against all sets of pods.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy as Generator};

use super::super::fixtures::{GIB, node, share, uuid, whole};
use super::super::{Demand, Evictable, Index, Preemptor, Strategy};
use super::{URGENT, bind, of_priority};

const GPUS: u32 = 3;

/// A bound pod of the oracle's test; `None` as facts: it must stay.
#[derive(Debug, Clone)]
struct Pod {
    demand: Demand,
    facts: Option<Evictable>,
}

fn pod() -> impl Generator<Value = Pod> {
    let memory = prop_oneof![Just(None), (1..60_u64).prop_map(|gib| Some(gib * GIB))];
    let size = prop_oneof![
        5 => (0..8_u32, memory.clone()).prop_map(|(tenths, memory)| share(tenths * 100, memory)),
        3 => (0..8_u32, memory, 2..=GPUS)
            .prop_map(|(tenths, memory, gpus)| Demand { gpus, ..share(tenths * 100, memory) }),
        1 => (1..3_u32).prop_map(whole),
    ];
    let facts = (0..4_i64, prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>(), 0..3_u64);
    let budgets = prop::collection::vec(0..2_usize, 0..2);
    let stays = prop::bool::weighted(0.1);
    (size, 0..URGENT + 2, facts, budgets, stays).prop_map(|(size, priority, facts, budgets, stays)| {
        let (started, is_ending, is_required, is_proposed, frees) = facts;
        let frees = vec![if is_proposed { frees } else { 0 }];
        let facts = Evictable { started, is_ending, is_required, is_proposed, budgets, frees };
        Pod { demand: of_priority(priority, size), facts: (!stays).then_some(facts) }
    })
}

/// What pods are bound where, for a computation without the index.
struct Oracle {
    /// UID, GPUs, demand and facts.
    pods: Vec<(String, Vec<u32>, Pod)>,
    allowed: Vec<i32>,
    need: u64,
}

impl Oracle {
    fn may_be_evicted(&self, at: usize) -> bool {
        let pod = &self.pods[at].2;
        pod.facts.is_some() && pod.demand.pod_priority < URGENT
    }

    fn facts(&self, at: usize) -> &Evictable {
        self.pods[at].2.facts.as_ref().unwrap()
    }

    /// Whether the demand fits and the other need is met when these pods have ended.
    fn is_enough(&self, set: &[usize], demand: &Demand) -> bool {
        let stays = |at: &usize| !set.contains(at);
        let staying = || (0..self.pods.len()).filter(stays);
        if staying().any(|at| self.may_be_evicted(at) && self.facts(at).is_required) {
            return false;
        }
        let freed: u64 = set.iter().map(|at| self.facts(*at).frees[0]).sum();
        let free = |gpu: u32| {
            let on_it = || staying().map(|at| &self.pods[at]).filter(move |(_, gpus, _)| gpus.contains(&gpu));
            let ppm: u32 = on_it().map(|(_, _, pod)| pod.demand.share.ppm()).sum();
            let memory: u64 = on_it().map(|(_, _, pod)| pod.demand.memory_on(80 * GIB)).sum();
            let is_whole = on_it().any(|(_, _, pod)| pod.demand.is_whole());
            if demand.is_whole() {
                return on_it().next().is_none();
            }
            !is_whole
                && ppm + demand.share.ppm() <= 1_000_000
                && memory + demand.memory_on(80 * GIB) <= 80 * GIB
        };
        let is_gang = |demand: &Demand| demand.gpus > 1 && !demand.is_whole();
        let gangs = || staying().map(|at| &self.pods[at]).filter(|(_, _, pod)| is_gang(&pod.demand));
        let meet = |one: &[u32], other: &[u32]| one.iter().any(|gpu| other.contains(gpu));
        // No two gangs have common GPUs with the pod and with each other and ask with it for more than all of the time.
        let has_slot = |gpus: &[u32]| {
            let beside: Vec<_> = gangs().filter(|(_, others, _)| meet(others, gpus)).collect();
            let excess = |(one, other): (usize, usize)| {
                let ppm = |at: usize| beside[at].2.demand.share.ppm();
                meet(&beside[one].1, &beside[other].1)
                    && ppm(one) + ppm(other) + demand.share.ppm() > 1_000_000
            };
            let mut pairs = (0..beside.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
            !is_gang(demand) || !pairs.any(excess)
        };
        let mut sets = (0..1_u32 << GPUS).filter(|bits| bits.count_ones() == demand.gpus);
        freed >= self.need
            && sets.any(|bits| {
                let gpus: Vec<u32> = (0..GPUS).filter(|gpu| bits >> gpu & 1 == 1).collect();
                gpus.iter().all(|gpu| free(*gpu)) && has_slot(&gpus)
            })
    }

    /// kube-scheduler's order: violations, highest priority, sum of priorities, number, latest start.
    fn cost(&self, set: &[usize]) -> (u32, i64, i64, usize, i64) {
        let mut evicted: Vec<usize> = set.iter().copied().filter(|at| !self.facts(*at).is_ending).collect();
        evicted.sort_by_key(|at| self.importance(*at));
        let mut allowed = self.allowed.clone();
        let mut violations = 0;
        for at in &evicted {
            for budget in &self.facts(*at).budgets {
                allowed[*budget] -= 1;
            }
            violations += u32::from(self.facts(*at).budgets.iter().any(|budget| allowed[*budget] < 0));
        }
        let priority = |at: &usize| i64::from(self.pods[*at].2.demand.pod_priority);
        let highest = evicted.iter().map(priority).max().unwrap_or(i64::MIN);
        let oldest =
            evicted.iter().filter(|at| priority(at) == highest).map(|at| self.facts(*at).started).min();
        let sum = evicted.iter().map(|at| priority(at) + (1 << 31)).sum();
        (violations, highest, sum, evicted.len(), -oldest.unwrap_or(i64::MAX))
    }

    /// The pods that may be evicted without a violation if all others are evicted too, and those that are ending.
    fn unprotected(&self) -> Vec<usize> {
        let mut pods: Vec<usize> = (0..self.pods.len()).filter(|at| self.may_be_evicted(*at)).collect();
        pods.sort_by_key(|at| self.importance(*at));
        let mut allowed = self.allowed.clone();
        pods.retain(|at| {
            if self.facts(*at).is_ending {
                return true;
            }
            self.facts(*at).budgets.iter().for_each(|budget| allowed[*budget] -= 1);
            self.facts(*at).budgets.iter().all(|budget| allowed[*budget] >= 0)
        });
        pods
    }

    fn importance(&self, at: usize) -> (i32, i64, String) {
        (-self.pods[at].2.demand.pod_priority, self.facts(at).started, self.pods[at].0.clone())
    }

    fn best(&self, demand: &Demand) -> Option<(u32, i64, i64, usize, i64)> {
        let evictable: Vec<usize> = (0..self.pods.len()).filter(|at| self.may_be_evicted(*at)).collect();
        let sets = (0..1_u32 << evictable.len()).map(|number| {
            let chosen = evictable.iter().enumerate().filter(move |(bit, _)| number >> bit & 1 == 1);
            chosen.map(|(_, at)| *at).collect::<Vec<_>>()
        });
        sets.filter(|set| self.is_enough(set, demand)).map(|set| self.cost(&set)).min()
    }
}

proptest! {
    #[test]
    fn victims_are_as_good_as_the_best_of_all_sets_while_checks_are_left_and_none_is_needless(
        pods in prop::collection::vec(pod(), 0..9), allowed in prop::collection::vec(0..3_i32, 2), need in 0..3_u64,
        demand in pod(), gpus in 1..=GPUS, checks in prop_oneof![Just(0_usize), Just(100_000)],
    ) {
        let demand = of_priority(URGENT, demand.demand);
        let mut index = Index::new(Strategy::Binpack);
        index.set_node("a", &node("a", gpus));
        for (at, pod) in pods.iter().enumerate() {
            bind(&mut index, &format!("pod-{at}"), &pod.demand);
        }
        // GPUs that the node does not have are in use by a pod that stays.
        let mut bound = vec![("absent".to_owned(), (gpus..GPUS).collect(), Pod { demand: whole(1), facts: None })];
        for (at, pod) in pods.iter().enumerate() {
            let name = format!("pod-{at}");
            if let [one] = index.reservations(&name) {
                let numbers = (0..GPUS).filter(|gpu| one.gpus.iter().any(|one| **one == *uuid("a", *gpu)));
                bound.push((name, numbers.collect(), pod.clone()));
            }
        }
        let oracle = Oracle { pods: bound, allowed: allowed.clone(), need };
        let facts: HashMap<&str, Option<Evictable>> =
            oracle.pods.iter().map(|(name, _, pod)| (name.as_str(), pod.facts.clone())).collect();
        let checks_left = Cell::new(checks);
        let preemptor = Preemptor {
            pod: "urgent", demand: &demand, disruptions_allowed: &allowed, needs: &[need], checks_left: &checks_left,
        };
        let found = index.victims("a", &preemptor, |pod| facts.get(pod).cloned().flatten());
        let Some(found) = found else {
            prop_assert_eq!(oracle.best(&demand), None);
            return Ok(());
        };
        let set: Vec<usize> = (0..oracle.pods.len())
            .filter(|at| found.pods.iter().any(|pod| **pod == *oracle.pods[*at].0))
            .collect();
        prop_assert_eq!(set.len(), found.pods.len());
        prop_assert!(set.iter().all(|at| oracle.may_be_evicted(*at)), "{:?}", found);
        prop_assert!(oracle.is_enough(&set, &demand), "{:?}", found);
        if checks > 0 {
            prop_assert_eq!(Some(oracle.cost(&set)), oracle.best(&demand), "{:?}", found);
        } else if gpus == 1 && oracle.is_enough(&oracle.unprotected(), &demand) {
            prop_assert_eq!(found.violations, 0, "{:?}", found);
        }
        prop_assert_eq!(found.violations, oracle.cost(&set).0);
        // Without checks left a part of the set may be enough on other GPUs.
        let is_compared = checks > 0 || gpus == 1;
        for spared in set.iter().filter(|at| is_compared && !oracle.facts(**at).is_required) {
            let fewer: Vec<usize> = set.iter().copied().filter(|at| at != spared).collect();
            prop_assert!(!oracle.is_enough(&fewer, &demand), "{:?} without {}", found, oracle.pods[*spared].0);
        }
    }
}
