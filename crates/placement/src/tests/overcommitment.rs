//! Pods whose memory may leave the GPU, beside others.

use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::fixtures::{GIB, gpu, share, uuid, whole};
use super::{
    Demand, Index, NodeInventory, PlacementOutcome, index, index_of, refusal, reserve, reserved_gpus,
};
use crate::inventory::Gpu;
use crate::{Countable, Evictable, Preemptor, Strategy};

/// A node of GPUs with 80 GiB each and this much memory of the host.
fn with_host(name: &str, gpus: u32, host_gib: u64) -> NodeInventory {
    let gpu = |number| Gpu { host_memory_bytes: host_gib * GIB, ..gpu(name, number) };
    NodeInventory::new(10, (0..gpus).map(gpu).collect())
}

fn fixed(gib: u64) -> Demand {
    share(0, Some(gib * GIB))
}

fn overcommits(gib: u64) -> Demand {
    Demand { overcommits: true, ..fixed(gib) }
}

#[test]
fn two_pods_of_seven_tenths_share_a_gpu_and_a_fixed_one_is_refused() {
    let mut index = index(&[("a", with_host("a", 1, 112))]);
    for pod in ["p", "q"] {
        assert_eq!(reserved_gpus(&mut index, pod, &overcommits(56), &["a"]), [uuid("a", 0)], "{pod}");
    }
    // 80 - 56 - 0.5 for the part of the other pod that never leaves.
    assert_eq!(
        refusal(&mut index, &fixed(24), "a"),
        "gpu-0 (GPU-a-0) has 23.5 GiB memory free, 24.0 GiB asked"
    );
    assert_eq!(reserved_gpus(&mut index, "small", &fixed(23), &["a"]), [uuid("a", 0)]);
    assert_eq!(
        refusal(&mut index, &overcommits(1), "a"),
        "gpu-0 (GPU-a-0) has 0.0 GiB of the host's memory free for pods with overcommitment, 1.0 GiB asked"
    );
}

#[test]
fn host_memory_holds_all_memory_that_may_leave() {
    let mut index = index(&[("a", with_host("a", 1, 100))]);
    assert_eq!(reserved_gpus(&mut index, "p", &overcommits(56), &["a"]), [uuid("a", 0)]);
    assert_eq!(
        refusal(&mut index, &overcommits(56), "a"),
        "gpu-0 (GPU-a-0) has 44.0 GiB of the host's memory free for pods with overcommitment, 56.0 GiB asked"
    );
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "q", &overcommits(56), &["a"]) else {
        panic!()
    };
    assert!(reasons[0].1.is_resolvable());
    assert_eq!(reasons[0].1.summary(), "no GPU with 56.0 GiB of the host's memory free");
    assert!(index.release("p"));
    assert_eq!(reserved_gpus(&mut index, "q", &overcommits(56), &["a"]), [uuid("a", 0)]);
    // The memory of each pod is rounded up to 2 MiB there.
    let bytes = |bytes| Demand { overcommits: true, ..share(0, Some(bytes)) };
    assert!(!reserved_gpus(&mut index, "odd", &bytes(22 * GIB + 1), &["a"]).is_empty());
    assert!(reserved_gpus(&mut index, "even", &bytes(22 * GIB), &["a"]).is_empty());
    assert!(!reserved_gpus(&mut index, "less", &bytes(22 * GIB - (2 << 20)), &["a"]).is_empty());
}

#[test]
fn gpu_without_memory_of_the_host_takes_no_pod_with_overcommitment() {
    let mut index = index(&[("a", with_host("a", 1, 0)), ("b", with_host("b", 1, 80))]);
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "p", &overcommits(1), &["a"]) else {
        panic!()
    };
    let expected = "gpu-0 (GPU-a-0) has no memory of the host for pods with overcommitment";
    assert_eq!(reasons[0].1.to_string(), expected);
    assert!(!reasons[0].1.is_resolvable());
    assert_eq!(reserved_gpus(&mut index, "p", &overcommits(1), &["a", "b"]), [uuid("b", 0)]);
}

#[test]
fn memory_that_leaves_is_avoided_where_another_gpu_has_room() {
    for strategy in [Strategy::Binpack, Strategy::Spread] {
        let mut index = index_of(strategy, &[("a", with_host("a", 2, 160))]);
        assert_eq!(reserved_gpus(&mut index, "p", &overcommits(56), &["a"]), [uuid("a", 0)]);
        assert_eq!(reserved_gpus(&mut index, "q", &overcommits(56), &["a"]), [uuid("a", 1)], "{strategy:?}");
        assert!(!reserved_gpus(&mut index, "r", &overcommits(56), &["a"]).is_empty());
    }
    // A pod without overcommitment makes others leave, too.
    let mut index = index(&[("a", with_host("a", 3, 160))]);
    for (pod, at) in [("p", 0), ("q", 0), ("r", 1)] {
        index.confirm(pod, "a", &[uuid("a", at)], &overcommits(40));
    }
    assert_eq!(reserved_gpus(&mut index, "fixed", &fixed(30), &["a"]), [uuid("a", 1)]);
}

#[test]
fn memory_of_the_host_counts_in_what_the_node_offers() {
    let offered = with_host("a", 2, 100).countable(|_| Countable::default());
    assert_eq!(offered.memory_mib, 2 * 180 * 1024);
    assert_eq!(overcommits(56).countable().memory_mib, 56 * 1024);
}

#[test]
fn pods_with_overcommitment_are_victims_like_others() {
    let mut index = index(&[("a", with_host("a", 1, 160))]);
    for pod in ["p", "q"] {
        index.confirm(pod, "a", &[uuid("a", 0)], &Demand { pod_priority: 1, ..overcommits(56) });
    }
    let victims = |index: &Index, demand: &Demand| {
        let preemptor = Preemptor {
            pod: "important",
            demand,
            disruptions_allowed: &[],
            needs: &[],
            checks_left: &std::cell::Cell::new(1_000),
        };
        let victims = index.victims("a", &preemptor, |_| Some(Evictable::default()));
        victims.map(|victims| victims.pods.iter().map(|pod| pod.to_string()).collect::<Vec<_>>())
    };
    let important = |demand| Demand { pod_priority: 10, ..demand };
    assert_eq!(victims(&index, &important(fixed(23))), Some(Vec::new()));
    // With one of them on the GPU 24 GiB are left.
    assert_eq!(victims(&index, &important(fixed(24))).map(|pods| pods.len()), Some(1));
    assert_eq!(victims(&index, &important(fixed(60))).map(|pods| pods.len()), Some(2));
    assert_eq!(victims(&index, &important(whole(1))).map(|pods| pods.len()), Some(2));
}

/// Whether the pods can be on a GPU together, found by considering each of them alone.
fn may_share(pods: &[(u64, bool)], capacity: u64, host: u64) -> bool {
    let stays = |memory: u64| memory.min(512 << 20);
    let fixed: u64 = pods.iter().filter(|(_, overcommits)| !overcommits).map(|(memory, _)| memory).sum();
    let leaving: Vec<u64> =
        pods.iter().filter(|(_, overcommits)| *overcommits).map(|(memory, _)| *memory).collect();
    let has_room = |at: usize, memory: u64| {
        let others = leaving.iter().enumerate().filter(|(other, _)| *other != at);
        fixed + memory + others.map(|(_, memory)| stays(*memory)).sum::<u64>() <= capacity
    };
    let granules = leaving.iter().map(|memory| memory.div_ceil(2 << 20)).sum::<u64>();
    fixed <= capacity
        && leaving.iter().enumerate().all(|(at, memory)| has_room(at, *memory))
        && granules * (2 << 20) <= host
}

fn pods() -> impl Generator<Value = Vec<(u64, bool)>> {
    let memory = prop_oneof![(1..60_u64).prop_map(|gib| gib * GIB), 1..4 * GIB, Just(512 << 20)];
    prop::collection::vec((memory, any::<bool>()), 0..8)
}

proptest! {
    #[test]
    fn pod_is_placed_exactly_where_all_pods_can_be_together(arriving in pods(), host_gib in 0..200_u64) {
        let mut index = index(&[("a", with_host("a", 1, host_gib))]);
        let mut placed: Vec<(u64, bool)> = Vec::new();
        for (number, (memory, overcommits)) in arriving.into_iter().enumerate() {
            let demand = Demand { overcommits, ..share(0, Some(memory)) };
            placed.push((memory, overcommits));
            let expected = may_share(&placed, 80 * GIB, host_gib * GIB);
            let outcome = reserve(&mut index, &format!("pod-{number}"), &demand, &["a"]);
            let is_placed = matches!(outcome, PlacementOutcome::Reserved(_));
            prop_assert_eq!(is_placed, expected, "{:?}", &placed);
            if !is_placed {
                placed.pop();
            }
        }
        // What one pod less leaves is again the same.
        if (0..8).any(|number| index.release(&format!("pod-{number}"))) {
            // The first that was placed.
            placed.remove(0);
            let newcomer = (30 * GIB, true);
            placed.push(newcomer);
            let demand = Demand { overcommits: true, ..share(0, Some(newcomer.0)) };
            let outcome = reserve(&mut index, "newcomer", &demand, &["a"]);
            let expected = may_share(&placed, 80 * GIB, host_gib * GIB);
            prop_assert_eq!(matches!(outcome, PlacementOutcome::Reserved(_)), expected, "{:?}", &placed);
        }
        prop_assert!(index.uses().all(|(_, uses)| uses.iter().all(|one| one.memory_bytes <= 80 * GIB)));
    }
}

#[test]
fn pods_that_have_lost_their_place_on_the_host_count_as_fixed_and_others_are_placed_beside_them() {
    let mut index = index(&[("a", with_host("a", 1, 112))]);
    for (pod, gib) in [("p", 40), ("q", 30)] {
        assert_eq!(reserved_gpus(&mut index, pod, &overcommits(gib), &["a"]), [uuid("a", 0)]);
    }
    index.set_node("a", &with_host("a", 1, 0));
    assert_eq!(
        refusal(&mut index, &fixed(11), "a"),
        "gpu-0 (GPU-a-0) has 10.0 GiB memory free, 11.0 GiB asked"
    );
    assert_eq!(reserved_gpus(&mut index, "r", &fixed(10), &["a"]), [uuid("a", 0)]);
}
