//! Victims against all sets of pods, and the room of nominated pods.

use std::collections::HashMap;

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy as Generator};

use super::fixtures::{GIB, node, share, uuid, whole};
use super::{Demand, Evictable, Index, PlacementOutcome, Preemptor, ProposedNode, Strategy, Victims};

const GPUS: u32 = 3;
/// The preemptor's priority.
const URGENT: i32 = 10;

fn of_priority(pod_priority: i32, demand: Demand) -> Demand {
    Demand { pod_priority, ..demand }
}

/// Binds a pod where it fits.
fn bind(index: &mut Index, pod: &str, demand: &Demand) {
    if let PlacementOutcome::Reserved(places) = index.reserve(pod, demand, ["a"].into_iter(), 1, 60) {
        index.begin_bind(pod, &places[0].node, 60).unwrap();
        assert!(index.bound(pod, "a"));
    }
}

/// A node `a` with these pods, each on the GPU of its number.
fn occupied(gpus: u32, pods: &[(&str, u32, i32, u32)]) -> Index {
    let mut index = Index::new(Strategy::Binpack);
    index.set_node("a", &node("a", gpus));
    for (pod, milli, priority, gpu) in pods {
        let demand =
            Demand { uuids: vec![uuid("a", *gpu)], ..of_priority(*priority, share(*milli, Some(GIB))) };
        bind(&mut index, pod, &demand);
        assert_eq!(index.reservations(pod).len(), 1, "{pod} does not fit");
    }
    index
}

/// The victims for a pod of the priority [`URGENT`]. Pods started in the order of their names.
fn victims(index: &Index, demand: Demand) -> Option<Victims> {
    let demand = of_priority(URGENT, demand);
    let preemptor = Preemptor { pod: "urgent", demand: &demand, disruptions_allowed: &[], needs: &[] };
    let facts = |pod: &str| Some(Evictable { started: i64::from(pod.as_bytes()[0]), ..Evictable::default() });
    index.victims("a", &preemptor, facts)
}

fn names(victims: Option<Victims>) -> Vec<String> {
    victims.unwrap().pods.iter().map(|pod| pod.to_string()).collect()
}

#[test]
fn youngest_pod_of_the_lowest_priority_is_evicted_on_the_gpu_where_one_is_enough() {
    let index = occupied(2, &[("a", 500, 1, 0), ("b", 400, 1, 0), ("c", 500, 0, 1), ("d", 500, 0, 1)]);
    assert_eq!(names(victims(&index, share(400, Some(GIB)))), ["d"]);
    assert_eq!(names(victims(&index, share(600, Some(GIB)))), ["c", "d"]);
    assert_eq!(victims(&index, share(400, Some(GIB))).unwrap().gpus, [uuid("a", 1).into()]);
}

#[test]
fn pods_of_the_same_or_a_higher_priority_stay() {
    let index = occupied(1, &[("a", 600, URGENT, 0), ("b", 400, URGENT - 1, 0)]);
    assert_eq!(names(victims(&index, share(400, Some(GIB)))), ["b"]);
    assert_eq!(victims(&index, share(500, Some(GIB))), None);
    assert_eq!(victims(&index, whole(1)), None);
}

#[test]
fn pod_that_is_not_bound_yet_is_not_evicted() {
    let mut index = occupied(1, &[("a", 500, 0, 0)]);
    index.reserve("late", &share(500, None), ["a"].into_iter(), 1, 60);
    assert_eq!(names(victims(&index, share(500, None))), ["a"]);
    assert_eq!(victims(&index, share(600, None)), None);
}

#[test]
fn more_pods_than_are_compared_are_spared_by_importance() {
    let letters: Vec<String> = (b'a'..b'u').map(|letter| char::from(letter).to_string()).collect();
    let pods: Vec<(&str, u32, i32, u32)> =
        letters.iter().map(|name| (name.as_str(), 50, i32::from(name.as_str() < "k"), 0)).collect();
    let index = occupied(1, &pods);
    assert_eq!(names(victims(&index, share(150, Some(GIB)))), ["r", "s", "t"]);
    assert_eq!(names(victims(&index, whole(1))).len(), 20);
}

#[test]
fn room_of_a_nominated_pod_is_kept_from_lower_priorities_until_the_pod_has_ended() {
    let mut index = occupied(2, &[("a", 600, 0, 0), ("b", 900, 0, 1)]);
    let urgent = of_priority(URGENT, share(1000, None));
    let proposed =
        ProposedNode { node: "a".into(), gpus: vec![uuid("a", 0).into()], victims: vec!["a".into()] };
    index.propose_nominations("urgent", &urgent, vec![proposed], 100);
    let fits = |index: &mut Index, pod: &str, priority: i32, milli: u32| {
        let demand = of_priority(priority, share(milli, Some(GIB)));
        let outcome = index.reserve(pod, &demand, ["a"].into_iter(), 1, u64::MAX);
        index.release(pod);
        matches!(outcome, PlacementOutcome::Reserved(_))
    };
    for is_nominated in [false, true] {
        assert!(!fits(&mut index, "lower", 0, 400), "before its victim has ended, {is_nominated}");
        assert!(!fits(&mut index, "same", URGENT, 400));
        assert!(fits(&mut index, "higher", URGENT + 1, 400));
        assert!(fits(&mut index, "elsewhere", 0, 100));
        index.nominate("urgent", "a", &urgent);
    }
    assert!(index.awaits_victims("urgent", "a", &urgent, |_| false));
    index.release("a");
    assert!(!index.awaits_victims("urgent", "a", &urgent, |_| false));
    assert!(!fits(&mut index, "lower", 0, 400), "after its victim has ended");
    index.expire(1_000);
    assert!(!fits(&mut index, "lower", 0, 400), "a nomination has no deadline");
    assert!(matches!(
        index.reserve("urgent", &urgent, ["a"].into_iter(), 1, 60),
        PlacementOutcome::Reserved(_)
    ));
    index.release("urgent");
    assert!(fits(&mut index, "lower", 0, 400));
}

#[test]
fn proposal_that_is_not_accepted_ends_at_its_deadline_and_a_withdrawn_nomination_at_once() {
    let mut index = occupied(1, &[("a", 600, 0, 0)]);
    let urgent = of_priority(URGENT, share(1000, None));
    let lower = share(400, Some(GIB));
    let proposed =
        |node: &str| ProposedNode { node: node.into(), gpus: vec![uuid("a", 0).into()], victims: Vec::new() };
    index.propose_nominations("urgent", &urgent, vec![proposed("a")], 100);
    index.withdraw_nomination("urgent");
    assert!(index.best("", &lower, ["a"].into_iter(), 1).is_empty());
    index.expire(100);
    assert_eq!(index.best("", &lower, ["a"].into_iter(), 1).len(), 1);
    // Nominated to another node than to one of those proposed.
    index.propose_nominations("urgent", &urgent, vec![proposed("a"), proposed("b")], 200);
    index.nominate("urgent", "b", &urgent);
    assert_eq!(index.best("", &lower, ["a"].into_iter(), 1).len(), 1);
    index.propose_nominations("urgent", &urgent, vec![proposed("a")], 300);
    index.nominate("urgent", "b", &urgent);
    assert!(
        index.best("", &lower, ["a"].into_iter(), 1).is_empty(),
        "an old event does not end a new proposal"
    );
    index.nominate("urgent", "a", &urgent);
    index.withdraw_nomination("urgent");
    assert_eq!(index.best("", &lower, ["a"].into_iter(), 1).len(), 1);
}

#[test]
fn nominated_pods_of_another_replica_get_different_gpus() {
    let mut index = occupied(2, &[("a", 600, 0, 0), ("b", 600, 0, 1)]);
    let urgent = of_priority(URGENT, share(1000, None));
    index.nominate("one", "a", &urgent);
    index.nominate("two", "a", &urgent);
    index.place_nominated(|pod| pod == "a" || pod == "b");
    assert!(index.best("", &share(100, Some(GIB)), ["a"].into_iter(), 1).is_empty());
    index.retain_nominated(|pod| pod == "two");
    assert_eq!(index.best("", &share(100, Some(GIB)), ["a"].into_iter(), 1).len(), 1);
}

/// A bound pod of the oracle's test; `None` as facts: it must stay.
#[derive(Debug, Clone)]
struct Pod {
    demand: Demand,
    facts: Option<Evictable>,
}

fn pod() -> impl Generator<Value = Pod> {
    let memory = prop_oneof![Just(None), (1..60_u64).prop_map(|gib| Some(gib * GIB))];
    let size = prop_oneof![
        5 => (0..8_u32, memory).prop_map(|(tenths, memory)| share(tenths * 100, memory)),
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
            let ppm: u32 = on_it().map(|(_, _, pod)| pod.demand.share_per_gpu().ppm()).sum();
            let memory: u64 = on_it().map(|(_, _, pod)| pod.demand.memory_on(80 * GIB)).sum();
            let is_whole = on_it().any(|(_, _, pod)| pod.demand.is_whole());
            if demand.is_whole() {
                return on_it().next().is_none();
            }
            !is_whole
                && ppm + demand.share_per_gpu().ppm() <= 1_000_000
                && memory + demand.memory_on(80 * GIB) <= 80 * GIB
        };
        freed >= self.need && (0..GPUS).filter(|gpu| free(*gpu)).count() >= demand.gpus() as usize
    }

    /// kube-scheduler's order: violations, highest priority, sum of priorities, number, latest start.
    fn cost(&self, set: &[usize]) -> (u32, i64, i64, usize, i64) {
        let mut evicted: Vec<usize> = set.iter().copied().filter(|at| !self.facts(*at).is_ending).collect();
        evicted.sort_by_key(|at| {
            (-self.pods[*at].2.demand.pod_priority, self.facts(*at).started, self.pods[*at].0.clone())
        });
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
    fn victims_are_as_good_as_the_best_of_all_sets_and_none_is_needless(
        pods in prop::collection::vec(pod(), 0..9), allowed in prop::collection::vec(0..3_i32, 2), need in 0..3_u64,
        demand in pod(), gpus in 1..=GPUS,
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
        let preemptor = Preemptor { pod: "urgent", demand: &demand, disruptions_allowed: &allowed, needs: &[need] };
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
        prop_assert_eq!(Some(oracle.cost(&set)), oracle.best(&demand), "{:?}", found);
        prop_assert_eq!(found.violations, oracle.cost(&set).0);
        for spared in set.iter().filter(|at| !oracle.facts(**at).is_required) {
            let fewer: Vec<usize> = set.iter().copied().filter(|at| at != spared).collect();
            prop_assert!(!oracle.is_enough(&fewer, &demand), "{:?} without {}", found, oracle.pods[*spared].0);
        }
    }
}
