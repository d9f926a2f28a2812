//! Placement, case by case.

mod countable;
mod fixtures;
mod instances;
mod overcommitment;
mod preemption;
mod properties;
mod several_gpus;

use super::*;
use crate::inventory::NodeInventory;
use fixtures::{GIB, gpu, node, share, uuid, whole};

const LATER: u64 = 60;

fn index(nodes: &[(&str, NodeInventory)]) -> Index {
    index_of(Strategy::Binpack, nodes)
}

fn index_of(strategy: Strategy, nodes: &[(&str, NodeInventory)]) -> Index {
    let mut index = Index::new(strategy);
    for (name, inventory) in nodes {
        index.set_node(name, inventory);
    }
    index
}

fn reserve(index: &mut Index, pod: &str, demand: &Demand, nodes: &[&str]) -> PlacementOutcome {
    index.reserve(pod, demand, nodes.iter().copied(), 1, LATER)
}

/// The GPUs reserved for the pod; none if it was refused.
fn reserved_gpus(index: &mut Index, pod: &str, demand: &Demand, nodes: &[&str]) -> Vec<String> {
    match reserve(index, pod, demand, nodes) {
        PlacementOutcome::Reserved(choices) => choices[0].gpus.iter().map(|gpu| gpu.to_string()).collect(),
        _ => Vec::new(),
    }
}

fn refusal(index: &mut Index, demand: &Demand, node: &str) -> String {
    match reserve(index, "refused", demand, &[node]) {
        PlacementOutcome::Refused(reasons) => reasons[0].1.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn gpu_is_filled_to_exactly_one_and_the_refusal_names_the_rest() {
    let mut index = index(&[("a", node("a", 1))]);
    for (pod, quota) in [("p1", 300), ("p2", 300), ("p3", 300), ("p4", 100)] {
        assert_eq!(reserved_gpus(&mut index, pod, &share(quota, Some(GIB)), &["a"]), [uuid("a", 0)], "{pod}");
    }
    assert_eq!(refusal(&mut index, &share(1, Some(GIB)), "a"), "gpu-0 (GPU-a-0) has 0.000 free, 0.001 asked");
    // A pod without a quota needs only memory.
    assert_eq!(reserved_gpus(&mut index, "be", &share(0, Some(GIB)), &["a"]), [uuid("a", 0)]);
}

#[test]
fn released_reservations_leave_the_sums_unchanged() {
    let mut index = index(&[("a", node("a", 1))]);
    for _ in 0..1000 {
        assert!(!reserved_gpus(&mut index, "p1", &share(200, None), &["a"]).is_empty());
        assert!(!reserved_gpus(&mut index, "p2", &share(100, None), &["a"]).is_empty());
        index.release("p1");
        index.release("p2");
    }
    assert_eq!(reserved_gpus(&mut index, "whole", &whole(1), &["a"]), [uuid("a", 0)]);
}

#[test]
fn default_memory_counts_for_the_fit() {
    let mut index = index(&[("a", node("a", 1))]);
    // Floor of 80 GiB x 0.333 each.
    let third = share(333, None);
    assert_eq!(third.memory_on(80 * GIB), 80 * GIB * 333 / 1000);
    assert!(!reserved_gpus(&mut index, "p1", &third, &["a"]).is_empty());
    assert!(!reserved_gpus(&mut index, "p2", &share(100, Some(50 * GIB)), &["a"]).is_empty());
    let message = refusal(&mut index, &share(100, Some(4 * GIB)), "a");
    assert_eq!(message, "gpu-0 (GPU-a-0) has 3.3 GiB memory free, 4.0 GiB asked");
    let message = refusal(&mut index, &share(0, Some(81 * GIB)), "a");
    assert_eq!(message, "gpu-0 (GPU-a-0) has 80.0 GiB memory in all, 81.0 GiB asked");
}

#[test]
fn pod_that_is_placed_again_does_not_compete_with_itself() {
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1))]);
    let most = share(900, None);
    assert_eq!(reserved_gpus(&mut index, "p", &most, &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "p", &most, &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "p", &most, &["b"]), [uuid("b", 0)]);
    assert_eq!(reserved_gpus(&mut index, "q", &most, &["a"]), [uuid("a", 0)]);
}

#[test]
fn pod_fits_on_the_next_node_if_the_first_is_full() {
    let mut index = index(&[("a", node("a", 2)), ("b", node("b", 2))]);
    for pod in ["p1", "p2"] {
        assert!(reserved_gpus(&mut index, pod, &share(1000, None), &["a"])[0].starts_with("GPU-a"));
    }
    assert_eq!(reserved_gpus(&mut index, "p3", &share(1000, None), &["a", "b"]), [uuid("b", 0)]);
}

#[test]
fn gpu_with_only_memory_reserved_is_not_entirely_free() {
    let mut index = index(&[("a", node("a", 1))]);
    assert!(!reserved_gpus(&mut index, "be", &share(0, Some(GIB)), &["a"]).is_empty());
    assert!(reserved_gpus(&mut index, "whole", &whole(1), &["a"]).is_empty());
}

#[test]
fn pod_goes_to_a_gpu_with_free_device_slots_though_another_has_room() {
    let mut index = index(&[("a", NodeInventory::new(3, vec![gpu("a", 0), gpu("a", 1)]))]);
    let two_containers = Demand { slots: 2, ..share(100, Some(GIB)) };
    assert_eq!(reserved_gpus(&mut index, "p1", &two_containers, &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "p2", &two_containers, &["a"]), [uuid("a", 1)]);
    assert_eq!(reserved_gpus(&mut index, "p3", &share(100, Some(GIB)), &["a"]), [uuid("a", 0)]);
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "p4", &two_containers, &["a"]) else {
        panic!()
    };
    let expected = "gpu-0 (GPU-a-0) has 3 of its 3 device slots in use; gpu-1 (GPU-a-1) has 2 of its 3 device slots in use";
    assert_eq!(reasons[0].1.to_string(), expected);
    assert_eq!(reasons[0].1.summary(), "no GPU with a free device slot");
    assert!(reasons[0].1.is_resolvable());
}

#[test]
fn refusal_for_more_device_slots_than_the_gpu_has_is_unresolvable() {
    let mut index = index(&[("a", NodeInventory::new(3, vec![gpu("a", 0)]))]);
    let four_containers = Demand { slots: 4, ..share(100, Some(GIB)) };
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "p", &four_containers, &["a"]) else {
        panic!()
    };
    assert!(!reasons[0].1.is_resolvable());
}

#[test]
fn free_time_is_unusable_on_gpus_that_cannot_take_a_pod_of_the_share() {
    let mut sick = node("b", 1);
    sick.gpus[0].healthy = false;
    let mut index = index(&[("a", node("a", 3)), ("b", sick)]);
    let free_time = |index: &Index, milli: u32| {
        let free = index.free_time(sluice_units::Share::from_ppm(milli * 1000).unwrap());
        (free.free_ppm / 1000, free.unusable_ppm / 1000)
    };
    assert_eq!(free_time(&index, 1000), (3000, 0));
    index.confirm("p0", "a", &[uuid("a", 0)], &share(800, Some(GIB)));
    // It has time, and not as much memory as a pod of half a GPU takes.
    index.confirm("p1", "a", &[uuid("a", 1)], &share(300, Some(60 * GIB)));
    assert_eq!(free_time(&index, 200), (1900, 0));
    assert_eq!(free_time(&index, 500), (1900, 900));
    assert_eq!(free_time(&index, 1000), (1900, 900));
    assert_eq!(index.free_time(sluice_units::Share::ONE).unusable_ratio(), 900.0 / 1900.0);
    index.confirm("p2", "a", &[uuid("a", 2)], &whole(1));
    index.confirm("p3", "a", &[uuid("a", 0), uuid("a", 1)], &share(1000, Some(GIB)));
    assert_eq!(index.free_time(sluice_units::Share::ONE).unusable_ratio(), 0.0, "nothing is free");
}

#[test]
fn models_and_uuids_are_selected_and_a_missing_one_is_not_resolvable() {
    let mut other = node("a", 2);
    other.gpus[1].model = "NVIDIA A100-SXM4-40GB".into();
    let mut index = index(&[("a", other)]);
    let model = |name: &str| Demand { models: vec![name.into()], ..share(100, None) };
    assert_eq!(reserved_gpus(&mut index, "p1", &model("NVIDIA-A100-SXM4-40GB"), &["a"]), [uuid("a", 1)]);
    assert_eq!(reserved_gpus(&mut index, "p2", &model("NVIDIA H100 80GB HBM3"), &["a"]), [uuid("a", 0)]);
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "p3", &model("H200"), &["a"]) else {
        panic!()
    };
    assert_eq!(
        reasons[0].1.to_string(),
        "no GPU of model H200 (has NVIDIA A100-SXM4-40GB, NVIDIA H100 80GB HBM3)"
    );
    assert!(!reasons[0].1.is_resolvable());
    let uuid = Demand { uuids: vec!["GPU-x".into(), "GPU-y".into()], ..share(100, None) };
    assert_eq!(refusal(&mut index, &uuid, "a"), "no GPU with UUID GPU-x or GPU-y");
    assert_eq!(refusal(&mut index, &uuid, "unheard-of"), "no GPUs of Sluice");
}

#[test]
fn unhealthy_gpu_accepts_no_pod_but_keeps_its_pods() {
    let mut index = index(&[("a", node("a", 1))]);
    index.confirm("old", "a", &[uuid("a", 0)], &share(600, None));
    let mut sick = node("a", 1);
    sick.gpus[0].healthy = false;
    sick.gpus[0].unhealthy_reason = Some("Xid 79".into());
    index.set_node("a", &sick);
    assert_eq!(refusal(&mut index, &share(100, None), "a"), "gpu-0 (GPU-a-0) is unhealthy: Xid 79");
    index.set_node("a", &node("a", 1));
    assert_eq!(refusal(&mut index, &share(500, None), "a"), "gpu-0 (GPU-a-0) has 0.400 free, 0.500 asked");
    assert!(!reserved_gpus(&mut index, "new", &share(400, None), &["a"]).is_empty());
}

#[test]
fn removed_gpu_keeps_its_pods_until_they_end() {
    let mut index = index(&[("a", node("a", 2))]);
    let only = Demand { uuids: vec![uuid("a", 1)], ..share(700, None) };
    index.confirm("old", "a", &[uuid("a", 1)], &only);
    index.set_node("a", &node("a", 1));
    assert_eq!(refusal(&mut index, &only, "a"), "no GPU with UUID GPU-a-1");
    index.remove_node("a");
    assert_eq!(refusal(&mut index, &share(1, None), "a"), "no GPUs of Sluice");
    index.set_node("a", &node("a", 2));
    assert_eq!(refusal(&mut index, &only, "a"), "gpu-1 (GPU-a-1) has 0.300 free, 0.700 asked");
    assert!(index.release("old"));
    assert!(!reserved_gpus(&mut index, "new", &only, &["a"]).is_empty());
}

#[test]
fn reservations_end_at_their_deadline_and_bound_pods_do_not() {
    let mut index = index(&[("a", node("a", 1))]);
    let half = share(500, None);
    assert!(!reserved_gpus(&mut index, "p1", &half, &["a"]).is_empty());
    assert!(!reserved_gpus(&mut index, "p2", &half, &["a"]).is_empty());
    index.confirm("p2", "a", &[uuid("a", 0)], &half);
    assert_eq!(index.counts(), (1, 1));
    assert_eq!(index.expire(LATER - 1), 0);
    assert_eq!(index.expire(LATER), 1);
    assert_eq!(index.counts(), (0, 1));
    assert_eq!(index.begin_bind("p1", "a", 99), Err(CannotBind::NotReserved));
    assert_eq!(index.expire(u64::MAX), 0);
}

#[test]
fn expired_reservation_leaves_the_bind_in_flight() {
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1))]);
    let all = share(1000, None);
    assert!(!reserved_gpus(&mut index, "p", &all, &["a"]).is_empty());
    index.begin_bind("p", "a", 500).unwrap();
    assert!(!reserved_gpus(&mut index, "p", &all, &["b"]).is_empty());
    assert_eq!(index.expire(LATER), 1);
    assert_eq!(reserved_gpus(&mut index, "q", &all, &["a", "b"]), [uuid("b", 0)]);
}

#[test]
fn placing_the_pod_again_does_not_release_a_bind_in_flight() {
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1))]);
    let most = share(800, None);
    assert!(!reserved_gpus(&mut index, "p", &most, &["a"]).is_empty());
    let choice = index.begin_bind("p", "a", 500).unwrap();
    assert_eq!(choice.to_string(), "gpu-0 of a: 0.800 of GPU-a-0, 64.0 GiB");
    // It may yet be bound to a: the same node if that is among the candidates, a second one if not.
    assert_eq!(reserve(&mut index, "p", &most, &["b", "a"]), PlacementOutcome::Bound(choice));
    assert_eq!(reserved_gpus(&mut index, "p", &most, &["b"]), [uuid("b", 0)]);
    assert!(reserved_gpus(&mut index, "q", &most, &["a", "b"]).is_empty());
    index.confirm("p", "b", &[uuid("b", 0)], &most);
    assert_eq!(reserved_gpus(&mut index, "q", &most, &["a", "b"]), [uuid("a", 0)]);
    assert_eq!(index.begin_bind("p", "a", 500), Err(CannotBind::BoundElsewhere("b".into())));
    assert!(matches!(reserve(&mut index, "p", &most, &["a"]), PlacementOutcome::ReservedElsewhere(_)));
}

#[test]
fn failed_bind_releases_and_a_late_failure_does_not_affect_a_bound_pod() {
    let mut index = index(&[("a", node("a", 1))]);
    let all = share(1000, None);
    assert!(!reserved_gpus(&mut index, "p", &all, &["a"]).is_empty());
    index.begin_bind("p", "a", 500).unwrap();
    index.abandon("p", "a");
    assert_eq!(reserved_gpus(&mut index, "q", &all, &["a"]), [uuid("a", 0)]);
    index.confirm("q", "a", &[uuid("a", 0)], &all);
    index.abandon("q", "a");
    assert!(reserved_gpus(&mut index, "p", &all, &["a"]).is_empty());
}

#[test]
fn reservation_is_not_bound_if_its_gpu_was_lost() {
    let mut index = index(&[("a", node("a", 1))]);
    assert!(!reserved_gpus(&mut index, "p", &share(600, None), &["a"]).is_empty());
    index.confirm("stranger", "a", &[uuid("a", 0)], &share(600, Some(1)));
    let refused = index.begin_bind("p", "a", 500).unwrap_err().to_string();
    assert_eq!(refused, "gpu-0 (GPU-a-0) cannot be had any more: it has been given to others");
    index.release("stranger");
    index.set_node("a", &node("a", 0));
    let refused = index.begin_bind("p", "a", 500).unwrap_err().to_string();
    assert!(refused.ends_with("cannot be had any more: it is not there any more"), "{refused}");
    let mut sick = node("a", 1);
    sick.gpus[0].healthy = false;
    index.set_node("a", &sick);
    assert!(index.begin_bind("p", "a", 500).unwrap_err().to_string().contains("unhealthy"));
}

#[test]
fn all_candidates_are_reserved_until_one_is_bound() {
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1)), ("c", node("c", 1))]);
    let all = share(1000, None);
    let PlacementOutcome::Reserved(choices) =
        index.reserve("p", &all, ["c", "b", "a", "b"].into_iter(), 2, LATER)
    else {
        panic!()
    };
    assert_eq!(choices.iter().map(|choice| &*choice.node).collect::<Vec<_>>(), ["a", "b"]);
    assert!(reserved_gpus(&mut index, "q", &all, &["a", "b"]).is_empty());
    index.begin_bind("p", "b", 500).unwrap();
    index.confirm("p", "b", &[uuid("b", 0)], &all);
    assert_eq!(reserved_gpus(&mut index, "q", &all, &["a", "b"]), [uuid("a", 0)]);
}

#[test]
fn binpack_fills_the_fullest_gpu_that_fits_and_spread_takes_the_emptiest() {
    for (strategy, expected) in [(Strategy::Binpack, uuid("b", 0)), (Strategy::Spread, uuid("a", 0))] {
        let mut index = index_of(strategy, &[("a", node("a", 1)), ("b", node("b", 2))]);
        index.confirm("x", "b", &[uuid("b", 0)], &share(400, None));
        index.confirm("y", "b", &[uuid("b", 1)], &share(700, None));
        assert_eq!(
            reserved_gpus(&mut index, "p", &share(500, None), &["a", "b"]),
            [expected],
            "{strategy:?}"
        );
    }
}

#[test]
fn pod_without_quota_goes_to_the_least_reserved_gpu_in_use() {
    let mut index = index(&[("a", node("a", 3))]);
    index.confirm("x", "a", &[uuid("a", 0)], &share(900, Some(GIB)));
    index.confirm("y", "a", &[uuid("a", 2)], &share(200, Some(GIB)));
    assert_eq!(reserved_gpus(&mut index, "be", &share(0, Some(GIB)), &["a"]), [uuid("a", 2)]);
}

#[test]
fn latency_critical_pods_share_gpus_with_best_effort_pods_before_they_share_with_each_other() {
    let critical = Demand { latency_critical: true, ..share(200, None) };
    let mut index = index(&[("a", node("a", 2)), ("b", node("b", 1))]);
    index.confirm("training", "a", &[uuid("a", 1)], &share(500, None));
    // By default GPUs are filled one after the other.
    assert_eq!(reserved_gpus(&mut index, "first", &critical, &["a", "b"]), [uuid("a", 1)]);
    assert_eq!(reserved_gpus(&mut index, "second", &critical, &["a", "b"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "third", &critical, &["a", "b"]), [uuid("b", 0)]);
    assert_eq!(reserved_gpus(&mut index, "fourth", &critical, &["a", "b"]), [uuid("a", 1)]);
}

#[test]
fn latency_critical_pod_with_preferences_is_offered_only_nodes_where_it_meets_the_fewest_of_its_kind() {
    let critical = Demand { latency_critical: true, ..share(200, None) };
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1)), ("c", node("c", 1))]);
    index.confirm("first", "b", &[uuid("b", 0)], &critical);
    let offered = |index: &mut Index, demand: &Demand| match index.reserve(
        "p",
        demand,
        ["a", "b", "c"].into_iter(),
        3,
        LATER,
    ) {
        PlacementOutcome::Reserved(places) => places.iter().map(|place| place.node.to_string()).collect(),
        _ => Vec::new(),
    };
    // The scheduler's scores choose among these.
    assert_eq!(offered(&mut index, &critical), ["a", "c"]);
    assert_eq!(offered(&mut index, &share(200, None)), ["b", "a", "c"]);
}

#[test]
fn equal_nodes_are_chosen_by_name_in_any_order_of_candidates() {
    for order in [["a", "b", "c"], ["c", "a", "b"]] {
        let mut index = index(&[("a", node("a", 2)), ("b", node("b", 2)), ("c", node("c", 2))]);
        assert_eq!(reserved_gpus(&mut index, "p", &share(10, None), &order), [uuid("a", 0)]);
    }
}

#[test]
fn summaries_are_equal_for_nodes_with_the_same_shortage() {
    let mut index = index(&[("a", node("a", 2)), ("b", node("b", 2))]);
    for (pod, at, quota) in
        [("1", ("a", 0), 800), ("2", ("a", 1), 900), ("3", ("b", 0), 950), ("4", ("b", 1), 1000)]
    {
        index.confirm(pod, at.0, &[uuid(at.0, at.1)], &share(quota, Some(GIB)));
    }
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "p", &share(300, Some(GIB)), &["a", "b"])
    else {
        panic!()
    };
    assert!(reasons.iter().all(|(_, reason)| reason.summary() == "no GPU with 0.300 free"));
    assert_eq!(
        reasons[0].1.to_string(),
        "gpu-0 (GPU-a-0) has 0.200 free, 0.300 asked; gpu-1 (GPU-a-1) has 0.100 free, 0.300 asked"
    );
}

#[test]
fn same_pods_and_nodes_make_the_same_index_in_any_order() {
    let half = share(500, None);
    let uses = |index: &Index| {
        let mut uses: Vec<_> = index.uses().map(|(name, uses)| (name.clone(), uses)).collect();
        uses.sort_by(|one, other| one.0.cmp(&other.0));
        uses
    };
    let mut forth = index(&[("a", node("a", 2))]);
    forth.confirm("p", "a", &[uuid("a", 1)], &half);
    forth.confirm("lost", "a", &["GPU-gone".into()], &half);
    let mut back = Index::new(Strategy::Binpack);
    back.confirm("lost", "a", &["GPU-gone".into()], &half);
    back.confirm("p", "a", &[uuid("a", 1)], &half);
    back.set_node("a", &node("a", 2));
    assert_eq!(uses(&forth), uses(&back));
}

#[test]
fn request_counts_by_its_quota_and_never_by_its_limit() {
    let annotations = [("sluice.dev/quota", "0.3"), ("sluice.dev/limit", "0.9")];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let request = crate::annotations::GpuRequest::from_annotations(&annotations).unwrap().unwrap();
    let demand = request.demand;
    assert_eq!((demand.share.ppm(), demand.memory_on(1000)), (300_000, 300));
    let mut index = index(&[("a", node("a", 1))]);
    for pod in ["p1", "p2", "p3"] {
        assert_eq!(reserved_gpus(&mut index, pod, &demand, &["a"]), [uuid("a", 0)]);
    }
    assert!(reserved_gpus(&mut index, "p4", &demand, &["a"]).is_empty());
}

#[test]
fn duplicate_in_the_inventory_is_one_gpu() {
    let mut index = index(&[("a", NodeInventory::new(10, vec![gpu("a", 0), gpu("a", 0)]))]);
    assert!(!reserved_gpus(&mut index, "p", &share(600, None), &["a"]).is_empty());
    assert!(reserved_gpus(&mut index, "q", &share(600, None), &["a"]).is_empty());
}

#[test]
fn pods_that_may_have_ended_are_listed_only_where_their_end_makes_room() {
    let mut index = index(&[("a", node("a", 1)), ("b", node("b", 1)), ("c", node("c", 1))]);
    let share = |milli| share(milli, Some(GIB));
    index.confirm("small", "a", &[uuid("a", 0)], &share(300));
    index.confirm("stays", "a", &[uuid("a", 0)], &share(700));
    index.confirm("large", "b", &[uuid("b", 0)], &share(900));
    index.confirm("also-stays", "c", &[uuid("c", 0)], &share(1000));
    let ways = |demand: &Demand, nodes: &[&str]| -> Vec<String> {
        let pods = index.possibly_ended_pods(demand, nodes.iter().copied(), |pod| !pod.contains("stays"));
        pods.iter().map(|pod| pod.to_string()).collect()
    };
    assert_eq!(ways(&share(500), &["a", "b", "c", "unknown"]), ["large"]);
    assert_eq!(ways(&share(300), &["a", "b", "c"]), ["small", "large"]);
    assert_eq!(ways(&share(300), &["a"]), ["small"]);
    assert!(ways(&whole(2), &["a", "b", "c"]).is_empty());
}
