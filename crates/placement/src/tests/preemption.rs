//! Victims case by case, and the room of nominated pods.

mod oracle;

use std::cell::Cell;
use std::collections::BTreeSet;

use super::fixtures::{GIB, node, on_each, share, uuid, whole};
use super::{Demand, Evictable, Index, PlacementOutcome, Preemptor, ProposedNode, Strategy, Victims};
use crate::inventory::NodeInventory;

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
    index.set_node("a", &NodeInventory { seats_per_gpu: 100, ..node("a", gpus) });
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
    let facts = |pod: &str| Evictable { started: i64::from(pod.as_bytes()[0]), ..Evictable::default() };
    victims_by(index, demand, &[], facts, &Cell::new(100_000))
}

fn victims_by(
    index: &Index,
    demand: Demand,
    disruptions_allowed: &[i32],
    facts: impl Fn(&str) -> Evictable,
    checks_left: &Cell<usize>,
) -> Option<Victims> {
    let demand = of_priority(URGENT, demand);
    let preemptor =
        Preemptor { pod: "urgent", demand: &demand, disruptions_allowed, needs: &[], checks_left };
    index.victims("a", &preemptor, |pod| Some(facts(pod)))
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
fn more_pods_than_are_compared_violate_no_budget_if_those_that_it_allows_are_enough() {
    let letters: Vec<String> = (b'a'..b'u').map(|letter| char::from(letter).to_string()).collect();
    let pods: Vec<(&str, u32, i32, u32)> = letters.iter().map(|name| (name.as_str(), 50, 0, 0)).collect();
    let index = occupied(1, &pods);
    // One budget of ten pods allows three evictions, and another allows those of all others.
    let facts = |pod: &str| Evictable {
        started: i64::from(pod.as_bytes()[0]),
        budgets: vec![usize::from(pod < "k")],
        ..Evictable::default()
    };
    let victims =
        |milli| victims_by(&index, share(milli, Some(GIB)), &[3, 20], facts, &Cell::new(100_000)).unwrap();
    assert_eq!(victims(650).violations, 0);
    assert_eq!(victims(700).violations, 1);
}

#[test]
fn search_for_several_gpus_checks_few_sets_of_pods() {
    let letters: Vec<String> = (b'a'..b'y').map(|letter| char::from(letter).to_string()).collect();
    let pods: Vec<(&str, u32, i32, u32)> =
        letters.iter().zip(0..).map(|(name, at)| (name.as_str(), 300, 0, at / 3)).collect();
    let index = occupied(8, &pods);
    let checks_left = Cell::new(1_000_000);
    let victims = victims_by(&index, whole(4), &[], |_| Evictable::default(), &checks_left).unwrap();
    assert_eq!(victims.pods.len(), 12);
    // Eight GPUs with 3 pods, and 70 sets of four GPUs with 12 pods: all together, each one spared, and the pods that are needed.
    assert_eq!(1_000_000 - checks_left.get(), 8 * (1 + 3 + 1) + 70 * (1 + 12 + 1));
    // Without checks left the first GPUs are taken: they are the cheapest to clear.
    assert_eq!(victims_by(&index, whole(4), &[], |_| Evictable::default(), &Cell::new(0)).unwrap(), victims);
}

#[test]
fn set_of_gpus_is_chosen_where_the_victims_are_cheapest() {
    let index = occupied(3, &[("a", 600, 2, 0), ("b", 600, 1, 1), ("c", 600, 0, 2)]);
    let found = victims(&index, on_each(2, 500)).unwrap();
    assert_eq!(BTreeSet::from_iter(found.gpus.clone()), [uuid("a", 1).into(), uuid("a", 2).into()].into());
    assert_eq!(names(Some(found)), ["b", "c"]);
    // A GPU with room needs no victim, and the one with the cheapest is the second.
    let index = occupied(3, &[("a", 600, 1, 0), ("b", 500, 1, 1), ("c", 600, 0, 2)]);
    assert_eq!(names(victims(&index, on_each(2, 500))), ["c"]);
    assert_eq!(names(victims(&index, on_each(3, 500))), ["a", "c"]);
    assert_eq!(victims(&index, on_each(4, 500)), None, "the node has three GPUs");
}

#[test]
fn cheapest_gpus_of_many_are_found_with_and_without_checks_left() {
    let letters: Vec<String> = (b'a'..b'k').map(|letter| char::from(letter).to_string()).collect();
    let pods: Vec<(&str, u32, i32, u32)> =
        letters.iter().zip(0..).map(|(name, at)| (name.as_str(), 600, i32::from(at < 8), at)).collect();
    let index = occupied(10, &pods);
    for checks in [0, 10_000] {
        let found = victims_by(&index, on_each(2, 500), &[], |_| Evictable::default(), &Cell::new(checks));
        assert_eq!(names(found), ["i", "j"], "{checks}");
    }
}

#[test]
fn victim_on_several_gpus_makes_room_on_each_of_them() {
    let mut index = occupied(3, &[("a", 700, 0, 0), ("b", 700, 0, 1), ("c", 700, 0, 2)]);
    assert_eq!(names(victims(&index, on_each(2, 500))).len(), 2);
    index.release("a");
    index.release("b");
    bind(&mut index, "wide", &Demand { uuids: vec![uuid("a", 0), uuid("a", 1)], ..on_each(2, 700) });
    assert_eq!(names(victims(&index, on_each(2, 500))), ["wide"]);
    assert_eq!(names(victims(&index, share(500, Some(GIB)))).len(), 1);
}

#[test]
fn pod_is_evicted_for_a_gang_that_has_room_but_no_slot() {
    let mut index = occupied(3, &[]);
    for (pod, gpus, priority) in [("first", [0, 1], 1), ("second", [1, 2], 0)] {
        let on_these = Demand { uuids: gpus.map(|at| uuid("a", at)).to_vec(), ..on_each(2, 400) };
        bind(&mut index, pod, &of_priority(priority, on_these));
    }
    // 0.6 of two GPUs is free.
    assert_eq!(names(victims(&index, on_each(2, 600))), ["second"]);
    assert_eq!(names(victims(&index, on_each(2, 200))), [""; 0]);
}

#[test]
fn room_on_several_gpus_is_kept_for_a_nominated_pod() {
    let mut index = occupied(3, &[("a", 600, 0, 0), ("b", 600, 0, 1), ("c", 900, 1, 2)]);
    let urgent = of_priority(URGENT, on_each(2, 500));
    let Victims { pods, gpus, .. } = victims(&index, urgent.clone()).unwrap();
    let proposed = ProposedNode { node: "a".into(), gpus, victims: pods };
    index.propose_nominations("urgent", &urgent, vec![proposed], 100);
    index.nominate("urgent", "a", &urgent);
    index.release("a");
    index.release("b");
    let most_free =
        |index: &Index, milli| !index.best("", &share(milli, None), ["a"].into_iter(), 1).is_empty();
    assert!(most_free(&index, 500) && !most_free(&index, 501));
    bind(&mut index, "urgent", &urgent);
    assert_eq!(index.reservations("urgent")[0].gpus, [uuid("a", 0).into(), uuid("a", 1).into()]);
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
    index.withdraw_nomination("urgent", u64::MAX);
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
    index.withdraw_nomination("urgent", u64::MAX);
    assert_eq!(index.best("", &lower, ["a"].into_iter(), 1).len(), 1);
}

#[test]
fn withdrawn_nomination_keeps_its_room_until_the_deadline_if_a_victim_is_still_bound() {
    let urgent = of_priority(URGENT, share(1000, None));
    let lower = share(400, Some(GIB));
    for relists in [false, true] {
        let mut index = occupied(1, &[("victim", 600, 0, 0)]);
        let victims = vec!["victim".into()];
        let proposed = ProposedNode { node: "a".into(), gpus: vec![uuid("a", 0).into()], victims };
        index.propose_nominations("urgent", &urgent, vec![proposed], 100);
        index.nominate("urgent", "a", &urgent);
        if relists {
            index.retain_nominated(|_| false, 200);
        } else {
            index.withdraw_nomination("urgent", 200);
        }
        // A repetition does not prolong it.
        index.withdraw_nomination("urgent", 300);
        assert!(index.nominated_node("urgent").is_none() && index.has_proposals("urgent"));
        index.release("victim");
        index.expire(199);
        assert!(index.best("", &lower, ["a"].into_iter(), 1).is_empty());
        index.expire(200);
        assert_eq!(index.best("", &lower, ["a"].into_iter(), 1).len(), 1);
    }
}

#[test]
fn pod_takes_the_room_of_a_lower_nominated_pod_only_without_another_and_without_victims_of_its_own() {
    let mut index = occupied(2, &[("a", 600, 0, 0), ("b", 600, 0, 1)]);
    let lower = of_priority(URGENT - 1, share(400, Some(GIB)));
    index.nominate("lower", "a", &lower);
    index.place_nominated(|_| false);
    let higher = of_priority(URGENT, share(400, Some(GIB)));
    let place = |index: &Index, pod: &str| {
        index.best(pod, &higher, ["a"].into_iter(), 1).first().map(|place| place.gpus[0].to_string())
    };
    assert_eq!(place(&index, "higher"), Some(uuid("a", 1)), "the room that is not nominated");
    bind(&mut index, "c", &Demand { uuids: vec![uuid("a", 1)], ..share(400, Some(GIB)) });
    assert_eq!(place(&index, "higher"), Some(uuid("a", 0)), "no other room");
    index.nominate("higher", "elsewhere", &higher);
    assert_eq!(place(&index, "higher"), None, "it waits for its own victims");
}

/// Both were nominated for the room of the same victim. If each kept the other one away, the victim would have been evicted in vain.
#[test]
fn nominated_pod_has_its_room_before_a_lower_one_that_was_nominated_there_first() {
    let mut index = occupied(1, &[("victim", 600, 0, 0)]);
    let [lower, urgent] = [URGENT - 1, URGENT].map(|priority| of_priority(priority, share(1000, Some(GIB))));
    for (pod, demand) in [("lower", &lower), ("urgent", &urgent)] {
        let preemptor =
            Preemptor { pod, demand, disruptions_allowed: &[], needs: &[], checks_left: &Cell::new(100) };
        let Victims { pods, gpus, .. } =
            index.victims("a", &preemptor, |_| Some(Evictable::default())).expect("a victim");
        let proposed = ProposedNode { node: "a".into(), gpus, victims: pods };
        index.propose_nominations(pod, demand, vec![proposed], 100);
        index.nominate(pod, "a", demand);
    }
    index.release("victim");
    let fits = |index: &Index, pod: &str, demand| !index.best(pod, demand, ["a"].into_iter(), 1).is_empty();
    assert!(!fits(&index, "lower", &lower));
    assert!(fits(&index, "urgent", &urgent));
    bind(&mut index, "urgent", &urgent);
    index.release("urgent");
    assert!(fits(&index, "lower", &lower), "once the other one has ended");
}

#[test]
fn nominated_pods_of_another_replica_get_different_gpus() {
    let mut index = occupied(2, &[("a", 600, 0, 0), ("b", 600, 0, 1)]);
    let urgent = of_priority(URGENT, share(1000, None));
    index.nominate("one", "a", &urgent);
    index.nominate("two", "a", &urgent);
    index.place_nominated(|pod| pod == "a" || pod == "b");
    assert!(index.best("", &share(100, Some(GIB)), ["a"].into_iter(), 1).is_empty());
    index.retain_nominated(|pod| pod == "two", u64::MAX);
    assert_eq!(index.best("", &share(100, Some(GIB)), ["a"].into_iter(), 1).len(), 1);
}
