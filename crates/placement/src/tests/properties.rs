//! Properties after any sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::fixtures::{GIB, link, node, on_each, share, uuid, whole};
use super::{Demand, Index, PlacementOutcome, ReservationState, Strategy};

const NODES: [&str; 3] = ["a", "b", "c"];
const GPUS: u32 = 4;
/// Groups of linked GPUs of a node.
const LINKS: [&[&[usize]]; 4] = [&[], &[&[0, 1, 2, 3]], &[&[0, 1], &[2, 3]], &[&[1, 3]]];

#[derive(Debug, Clone)]
enum Step {
    Reserve { pod: u8, demand: Demand, nodes: u8, most: usize },
    Bind { pod: u8 },
    Confirm { pod: u8 },
    Abandon { pod: u8 },
    Release { pod: u8 },
    Pass { time: u64 },
    Health { node: usize, gpu: u32, healthy: bool },
    Lose { node: usize },
}

fn demand() -> impl Generator<Value = Demand> {
    let memory = prop_oneof![Just(None), (1..90_u64).prop_map(|gib| Some(gib * GIB))];
    let gpus = prop_oneof![Just(1), 2..=GPUS];
    let share = (gpus, 0..=1000_u32, memory)
        .prop_map(|(gpus, quota, memory)| Demand { gpus, ..share(quota, memory) });
    let any_class = prop_oneof![4 => share, 1 => (1..4_u32).prop_map(whole)];
    (any_class, 1..5_u32, any::<bool>()).prop_map(|(demand, slots, latency_critical)| Demand {
        slots,
        latency_critical,
        ..demand
    })
}

/// Latency-critical pods with a reservation on the GPU.
fn critical_pods(index: &Index, node: &str, gpu: &str) -> usize {
    let reservations = (0..12).flat_map(|pod| index.reservations(&format!("pod-{pod}")));
    let is_on = |one: &&super::Reservation| *one.node == *node && one.gpus.iter().any(|uuid| **uuid == *gpu);
    reservations.filter(is_on).filter(|one| one.demand.latency_critical).count()
}

fn step() -> impl Generator<Value = Step> {
    let pod = 0..12_u8;
    prop_oneof![
        6 => (pod.clone(), demand(), 1..8_u8, 1..3_usize)
            .prop_map(|(pod, demand, nodes, most)| Step::Reserve { pod, demand, nodes, most }),
        3 => pod.clone().prop_map(|pod| Step::Bind { pod }),
        3 => pod.clone().prop_map(|pod| Step::Confirm { pod }),
        1 => pod.clone().prop_map(|pod| Step::Abandon { pod }),
        2 => pod.prop_map(|pod| Step::Release { pod }),
        1 => (0..40_u64).prop_map(|time| Step::Pass { time }),
        1 => (0..3_usize, 0..GPUS, any::<bool>()).prop_map(|(node, gpu, healthy)| Step::Health { node, gpu, healthy }),
        1 => (0..3_usize).prop_map(|node| Step::Lose { node }),
    ]
}

fn index(strategy: Strategy) -> Index {
    let mut index = Index::new(strategy);
    for name in NODES {
        index.set_node(name, &node(name, GPUS));
    }
    index
}

/// Applies a step as the extender does.
fn apply(index: &mut Index, now: &mut u64, step: &Step) {
    let name = |pod: &u8| format!("pod-{pod}");
    match step {
        Step::Reserve { pod, demand, nodes, most } => {
            let nodes: Vec<&str> = NODES
                .iter()
                .enumerate()
                .filter(|(at, _)| nodes & (1 << at) != 0)
                .map(|(_, name)| *name)
                .collect();
            index.reserve(&name(pod), demand, nodes.into_iter(), *most, *now + 60);
        }
        Step::Bind { pod } => {
            let first = index.reservations(&name(pod)).first().map(|claim| claim.node.clone());
            if let Some(node) = first {
                let _ = index.begin_bind(&name(pod), &node, *now + 100);
            }
        }
        Step::Confirm { pod } => {
            let binding =
                |claim: &&super::Reservation| matches!(claim.state, ReservationState::Binding { .. });
            let found = index.reservations(&name(pod)).iter().find(binding).cloned();
            if let Some(claim) = found {
                let gpus: Vec<String> = claim.gpus.iter().map(|gpu| gpu.to_string()).collect();
                index.confirm(&name(pod), &claim.node, &gpus, &claim.demand);
            }
        }
        Step::Abandon { pod } => NODES.iter().for_each(|node| index.abandon(&name(pod), node)),
        Step::Release { pod } => {
            index.release(&name(pod));
        }
        Step::Pass { time } => {
            *now += time;
            index.expire(*now);
        }
        Step::Health { node: at, gpu, healthy } => {
            let mut inventory = node(NODES[*at], GPUS);
            inventory.gpus[*gpu as usize].healthy = *healthy;
            index.set_node(NODES[*at], &inventory);
        }
        Step::Lose { node } => index.remove_node(NODES[*node]),
    }
}

/// Sums of the reservations on a GPU: parts per million, bytes, pods, pods with the whole GPU, device slots.
type Sums = (u64, u64, u32, u32, u32);

/// The sums of all reservations, by node and GPU.
fn sums(index: &Index) -> BTreeMap<(String, String), Sums> {
    let mut sums: BTreeMap<(String, String), Sums> = BTreeMap::new();
    for pod in 0..12 {
        for claim in index.reservations(&format!("pod-{pod}")) {
            for gpu in &claim.gpus {
                let sum = sums.entry((claim.node.to_string(), gpu.to_string())).or_default();
                sum.0 += u64::from(claim.demand.share.ppm());
                sum.1 += claim.demand.memory_on(80 * GIB);
                sum.2 += 1;
                sum.3 += u32::from(claim.demand.is_whole());
                sum.4 += claim.demand.slots;
            }
        }
    }
    sums
}

/// A set of GPUs of one node on which a demand fits, found without the index: the node, the GPUs by their numbers, the sum of
/// their reserved time, and the latency-critical pods on them.
#[derive(Debug, Clone)]
struct FeasibleSet {
    node: &'static str,
    gpus: Vec<String>,
    ppm: u64,
    critical: usize,
}

/// Whether a pod with several GPUs has a slot on these: with each two others that have a common GPU with it and with each other it asks
/// for 1 at most.
fn has_slot(index: &Index, node: &str, gpus: &[String], demand: &Demand) -> bool {
    let is_gang = |demand: &Demand| demand.gpus > 1 && !demand.latency_critical && !demand.is_whole();
    let reservations = (0..12).flat_map(|pod| index.reservations(&format!("pod-{pod}")));
    let here = reservations.filter(|one| *one.node == *node && is_gang(&one.demand));
    let others: Vec<(BTreeSet<String>, u32)> = here
        .map(|one| (one.gpus.iter().map(ToString::to_string).collect(), one.demand.share.ppm()))
        .collect();
    let gpus: BTreeSet<String> = gpus.iter().cloned().collect();
    let meets = |one: &BTreeSet<String>, other: &BTreeSet<String>| !one.is_disjoint(other);
    let is_excess = |(at, one): (usize, &(BTreeSet<String>, u32))| {
        let mut after = others.iter().skip(at + 1);
        after.any(|other| {
            meets(&one.0, &gpus)
                && meets(&other.0, &gpus)
                && meets(&one.0, &other.0)
                && one.1 + other.1 + demand.share.ppm() > 1_000_000
        })
    };
    !is_gang(demand) || !others.iter().enumerate().any(is_excess)
}

/// All sets of different GPUs of one node that can take the demand. All GPUs are healthy.
fn feasible_sets(index: &Index, demand: &Demand) -> Vec<FeasibleSet> {
    let sums = sums(index);
    let sum_of =
        |node: &str, gpu: &String| sums.get(&(node.to_owned(), gpu.clone())).copied().unwrap_or_default();
    let fits = |node: &str, gpu: &String| {
        let (ppm, memory, pods, whole, slots) = sum_of(node, gpu);
        whole == 0
            && !(demand.is_whole() && pods > 0)
            && slots + demand.slots <= 10
            && ppm + u64::from(demand.share.ppm()) <= 1_000_000
            && memory + demand.memory_on(80 * GIB) <= 80 * GIB
    };
    let sets = NODES.into_iter().flat_map(|node| (0..1_u32 << GPUS).map(move |bits| (node, bits)));
    let sets = sets.filter(|(_, bits)| bits.count_ones() == demand.gpus).map(|(node, bits)| {
        let numbers = (0..GPUS).filter(|gpu| bits >> gpu & 1 == 1);
        (node, numbers.map(|gpu| uuid(node, gpu)).collect::<Vec<String>>())
    });
    let sets = sets
        .filter(|(node, gpus)| gpus.iter().all(|gpu| fits(node, gpu)) && has_slot(index, node, gpus, demand));
    sets.map(|(node, gpus)| FeasibleSet {
        node,
        ppm: gpus.iter().map(|gpu| sum_of(node, gpu).0).sum(),
        critical: gpus.iter().map(|gpu| critical_pods(index, node, gpu)).sum(),
        gpus,
    })
    .collect()
}

proptest! {
    #[test]
    fn set_is_found_where_one_exists_and_is_the_best_of_all(
        steps in prop::collection::vec(step(), 0..60), demand in demand(), binpack: bool,
        links in prop::sample::select(&LINKS[..]),
    ) {
        let mut index = index(if binpack { Strategy::Binpack } else { Strategy::Spread });
        let mut now = 0;
        for step in &steps {
            apply(&mut index, &mut now, step);
        }
        for name in NODES {
            let mut inventory = node(name, GPUS);
            link(&mut inventory, links);
            index.set_node(name, &inventory);
        }
        let sets = feasible_sets(&index, &demand);
        let PlacementOutcome::Reserved(places) = index.reserve("newcomer", &demand, NODES.into_iter(), 1, u64::MAX) else {
            prop_assert!(sets.is_empty(), "{:?}", sets);
            return Ok(());
        };
        let mut chosen: Vec<String> = places[0].gpus.iter().map(|gpu| gpu.to_string()).collect();
        chosen.sort();
        let found = sets.iter().find(|set| *set.node == *places[0].node && set.gpus == chosen);
        prop_assert!(found.is_some(), "{:?} is none of {:?}", places, sets);
        let found = found.cloned().unwrap();
        if demand.latency_critical {
            prop_assert_eq!(Some(found.critical), sets.iter().map(|set| set.critical).min());
        } else if demand.share > sluice_units::Share::ZERO && links.iter().all(|group| group.len() == GPUS as usize) {
            // Links would come first.
            let all = sets.iter().map(|set| set.ppm);
            prop_assert_eq!(Some(found.ppm), if binpack { all.max() } else { all.min() });
        }
    }

    #[test]
    fn set_with_a_slot_is_found_where_one_exists(
        gangs in prop::collection::vec((1..1_u32 << GPUS, 100..500_u32, any::<bool>()), 0..6),
        (gpus, milli) in (2..=GPUS, 100..700_u32), binpack: bool,
    ) {
        let mut index = index(if binpack { Strategy::Binpack } else { Strategy::Spread });
        for (number, (bits, milli, latency_critical)) in gangs.into_iter().enumerate() {
            let demand = Demand { latency_critical, ..on_each(bits.count_ones(), milli) };
            let gpus: Vec<String> = (0..GPUS).filter(|gpu| bits >> gpu & 1 == 1).map(|gpu| uuid("a", gpu)).collect();
            if feasible_sets(&index, &demand).iter().any(|set| set.node == "a" && set.gpus == gpus) {
                index.confirm(&format!("pod-{number}"), "a", &gpus, &demand);
            }
        }
        let demand = on_each(gpus, milli);
        let sets: Vec<Vec<String>> = feasible_sets(&index, &demand)
            .into_iter().filter(|set| set.node == "a").map(|set| set.gpus).collect();
        match index.place_on_node("newcomer", &demand, "a") {
            Ok(place) => {
                let chosen: Vec<String> = place.gpus.iter().map(ToString::to_string).collect();
                prop_assert!(sets.contains(&chosen), "{chosen:?} is none of {sets:?}");
            }
            Err(reasons) => prop_assert!(sets.is_empty(), "{reasons}: {sets:?}"),
        }
    }

    #[test]
    fn no_gpu_is_reserved_beyond_its_capacity(steps in prop::collection::vec(step(), 1..120), binpack: bool) {
        let mut index = index(if binpack { Strategy::Binpack } else { Strategy::Spread });
        let mut now = 0;
        for step in &steps {
            apply(&mut index, &mut now, step);
            for (gpu, (ppm, memory, pods, whole, slots)) in sums(&index) {
                prop_assert!(slots <= 10, "{gpu:?} has {slots} device slots given after {step:?}");
                prop_assert!(ppm <= 1_000_000, "{gpu:?} has {ppm} given after {step:?}");
                prop_assert!(memory <= 80 * GIB, "{gpu:?} has {memory} bytes given after {step:?}");
                prop_assert!(whole == 0 || pods == 1, "{gpu:?} is whole and shared after {step:?}");
            }
        }
    }

    #[test]
    fn sums_match_the_reservations_and_end_at_zero(steps in prop::collection::vec(step(), 1..120)) {
        let mut index = index(Strategy::Binpack);
        let mut now = 0;
        for step in &steps {
            apply(&mut index, &mut now, step);
        }
        for name in NODES {
            index.set_node(name, &node(name, GPUS));
        }
        let sums = sums(&index);
        for (name, uses) in index.uses() {
            for one in uses {
                let key = (name.to_string(), one.gpu.to_string());
                let sum = sums.get(&key).copied().unwrap_or_default();
                prop_assert_eq!((one.ppm, one.memory_bytes, one.pods), (sum.0, sum.1, sum.2), "{:?}", key);
            }
        }
        for pod in 0..12 {
            index.release(&format!("pod-{pod}"));
        }
        prop_assert_eq!(index.counts(), (0, 0));
        prop_assert!(index.uses().all(|(_, uses)| uses.iter().all(|one| (one.ppm, one.memory_bytes, one.pods) == (0, 0, 0))));
    }

    #[test]
    fn rebuilt_index_is_the_same_in_every_order(
        steps in prop::collection::vec(step(), 1..80), order in Just((0..15_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut first = index(Strategy::Binpack);
        let mut now = 0;
        for step in &steps {
            apply(&mut first, &mut now, step);
        }
        let mut rebuilt = Index::new(Strategy::Binpack);
        let mut again = Index::new(Strategy::Binpack);
        for (index, order) in [(&mut rebuilt, (0..15).collect::<Vec<_>>()), (&mut again, order)] {
            for at in order {
                if let Some(name) = NODES.get(at) {
                    index.set_node(name, &node(name, GPUS));
                    continue;
                }
                let pod = format!("pod-{}", at - NODES.len());
                for claim in first.reservations(&pod).iter().filter(|claim| claim.state == ReservationState::Confirmed) {
                    let gpus: Vec<String> = claim.gpus.iter().map(|gpu| gpu.to_string()).collect();
                    index.confirm(&pod, &claim.node, &gpus, &claim.demand);
                }
            }
        }
        let uses = |index: &Index| {
            let mut uses: Vec<_> = index.uses().map(|(name, uses)| (name.to_string(), format!("{uses:?}"))).collect();
            uses.sort();
            uses
        };
        prop_assert_eq!(uses(&rebuilt), uses(&again));
        prop_assert_eq!(rebuilt.counts().1, again.counts().1);
    }

    #[test]
    fn demand_is_reserved_if_it_fits_and_refused_with_reasons_otherwise(
        steps in prop::collection::vec(step(), 0..60), demand in demand(),
    ) {
        let mut index = index(Strategy::Spread);
        let mut now = 0;
        for step in &steps {
            apply(&mut index, &mut now, step);
        }
        let fits = NODES.iter().any(|name| !index.best("", &demand, std::iter::once(*name), 1).is_empty());
        let offer = index.reserve("newcomer", &demand, NODES.into_iter(), 1, u64::MAX);
        prop_assert_eq!(fits, matches!(offer, PlacementOutcome::Reserved(_)));
        if let PlacementOutcome::Refused(reasons) = offer {
            prop_assert_eq!(reasons.len(), NODES.len());
            prop_assert!(reasons.iter().all(|(_, reason)| !reason.to_string().is_empty() && !reason.summary().is_empty()));
        }
    }

    #[test]
    fn answer_for_one_node_is_that_of_a_reservation_there(
        steps in prop::collection::vec(step(), 0..60), demand in demand(),
    ) {
        let mut index = index(Strategy::Spread);
        let mut now = 0;
        for step in &steps {
            apply(&mut index, &mut now, step);
        }
        for node in NODES {
            let answer = index.place_on_node("newcomer", &demand, node);
            let offer = index.reserve("newcomer", &demand, std::iter::once(node), 1, u64::MAX);
            index.release("newcomer");
            let expected = match answer {
                Ok(placement) => PlacementOutcome::Reserved(vec![placement]),
                Err(reasons) => PlacementOutcome::Refused(vec![(node.into(), reasons)]),
            };
            prop_assert_eq!(offer, expected);
        }
    }
}
