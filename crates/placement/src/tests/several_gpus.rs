//! Sets of GPUs for one pod.

use super::fixtures::{GIB, link, node, on_each, share, uuid, whole};
use super::{Demand, Index, PlacementOutcome, index, refusal, reserve, reserved_gpus};

#[test]
fn pod_of_several_gpus_gets_the_most_used_ones_with_room_of_one_node() {
    let mut index = index(&[("a", node("a", 2)), ("b", node("b", 4))]);
    for (pod, at, milli) in [("p1", 0, 300), ("p2", 1, 800), ("p3", 2, 600)] {
        index.confirm(pod, "b", &[uuid("b", at)], &share(milli, Some(GIB)));
    }
    assert_eq!(reserved_gpus(&mut index, "p", &on_each(2, 400), &["a", "b"]), [uuid("b", 0), uuid("b", 2)]);
    // Each GPU gives the share once: 0.3 and 0.4, and 0.6 and 0.4 are reserved now.
    let left: Vec<(u64, u64, u32)> = index
        .uses()
        .flat_map(|(name, uses)| uses.into_iter().filter(|_| **name == *"b"))
        .map(|one| (one.ppm / 1000, one.memory_bytes / GIB, one.pods))
        .collect();
    assert_eq!(left, [(700, 2, 2), (800, 1, 1), (1000, 2, 2), (0, 0, 0)]);
    assert_eq!(
        refusal(&mut index, &on_each(3, 400), "b"),
        "1 of 3 GPUs fit: gpu-0 (GPU-b-0) has 0.300 free, 0.400 asked; gpu-1 (GPU-b-1) has 0.200 free, 0.400 asked; \
         gpu-2 (GPU-b-2) has 0.000 free, 0.400 asked"
    );
    assert_eq!(refusal(&mut index, &on_each(3, 400), "a"), "2 of 3 GPUs fit, and there are no others");
    assert!(index.release("p"));
    assert_eq!(
        reserved_gpus(&mut index, "p", &on_each(4, 200), &["a", "b"]),
        [0, 1, 2, 3].map(|at| uuid("b", at))
    );
}

#[test]
fn refusal_of_several_gpus_is_resolvable_only_if_enough_of_them_can_become_free() {
    let mut sick = node("a", 3);
    sick.gpus[0].healthy = false;
    let mut index = index(&[("a", sick)]);
    index.confirm("p", "a", &[uuid("a", 1)], &share(800, Some(GIB)));
    for (gpus, is_resolvable) in [(2, true), (3, false)] {
        let PlacementOutcome::Refused(reasons) = reserve(&mut index, "q", &on_each(gpus, 400), &["a"]) else {
            panic!()
        };
        assert_eq!(reasons[0].1.is_resolvable(), is_resolvable, "{gpus}");
        assert_eq!(reasons[0].1.summary(), format!("fewer than {gpus} GPUs with 0.400 free"));
    }
}

#[test]
fn linked_gpus_are_preferred_to_more_used_ones_for_shares_of_several_gpus() {
    let mut inventory = node("a", 4);
    link(&mut inventory, &[&[0, 1], &[2, 3]]);
    let mut index = index(&[("a", inventory)]);
    index.confirm("p1", "a", &[uuid("a", 1)], &share(500, Some(GIB)));
    index.confirm("p2", "a", &[uuid("a", 2)], &share(600, Some(GIB)));
    assert_eq!(reserved_gpus(&mut index, "p", &on_each(2, 400), &["a"]), [uuid("a", 2), uuid("a", 3)]);
    assert_eq!(reserved_gpus(&mut index, "q", &on_each(2, 400), &["a"]), [uuid("a", 0), uuid("a", 1)]);
    assert_eq!(reserved_gpus(&mut index, "r", &on_each(2, 600), &["a"]), [uuid("a", 0), uuid("a", 3)]);
}

#[test]
fn linked_set_is_found_that_the_most_used_gpu_is_no_part_of() {
    let demand = on_each(2, 100);
    // The most used GPU has no link, or one to a GPU that is free.
    for (links, milli) in [(&[&[1, 2][..]][..], [900, 800, 0, 0]), (&[&[1, 2], &[0, 3]], [900, 800, 800, 0])]
    {
        let mut inventory = node("a", 4);
        link(&mut inventory, links);
        let mut index = index(&[("a", inventory)]);
        for (at, milli) in (0..).zip(milli).filter(|(_, milli)| *milli > 0) {
            index.confirm(&format!("p{at}"), "a", &[uuid("a", at)], &share(milli, Some(GIB)));
        }
        assert_eq!(
            reserved_gpus(&mut index, "p", &demand, &["a"]),
            [uuid("a", 1), uuid("a", 2)],
            "{milli:?}"
        );
    }
}

#[test]
fn linked_set_leaves_the_other_linked_gpus_together() {
    let mut inventory = node("a", 4);
    inventory.gpus[0].nvlink = vec![uuid("a", 1), uuid("a", 2)];
    inventory.gpus[1].nvlink = vec![uuid("a", 3)];
    let mut index = index(&[("a", inventory)]);
    assert_eq!(reserved_gpus(&mut index, "p", &whole(2), &["a"]), [uuid("a", 0), uuid("a", 2)]);
    assert_eq!(reserved_gpus(&mut index, "q", &whole(2), &["a"]), [uuid("a", 1), uuid("a", 3)]);
}

#[test]
fn latency_critical_pod_of_several_gpus_meets_as_few_of_its_kind_as_possible() {
    let critical = |gpus| Demand { latency_critical: true, ..on_each(gpus, 200) };
    let mut index = index(&[("a", node("a", 3)), ("b", node("b", 3))]);
    assert_eq!(reserved_gpus(&mut index, "p1", &critical(1), &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "p2", &critical(2), &["a"]), [uuid("a", 1), uuid("a", 2)]);
    assert_eq!(reserved_gpus(&mut index, "p3", &critical(1), &["b"]), [uuid("b", 0)]);
    assert_eq!(reserved_gpus(&mut index, "p4", &critical(3), &["a", "b"]), [0, 1, 2].map(|at| uuid("b", at)));
    // The links of each GPU lead to one with another of its kind.
    let mut linked = node("c", 4);
    link(&mut linked, &[&[0, 1], &[2, 3]]);
    index.set_node("c", &linked);
    for at in [1, 3] {
        index.confirm(&format!("on-{at}"), "c", &[uuid("c", at)], &critical(1));
    }
    assert_eq!(reserved_gpus(&mut index, "p5", &critical(2), &["c"]), [uuid("c", 0), uuid("c", 2)]);
}

#[test]
fn rebuilt_index_has_the_share_of_a_bound_pod_on_each_of_its_gpus() {
    let mut index = index(&[]);
    index.confirm("p", "a", &[uuid("a", 0), uuid("a", 2)], &on_each(2, 700));
    index.set_node("a", &node("a", 3));
    assert_eq!(reserved_gpus(&mut index, "q", &on_each(1, 400), &["a"]), [uuid("a", 1)]);
    assert!(reserved_gpus(&mut index, "r", &on_each(2, 400), &["a"]).is_empty());
    assert_eq!(reserved_gpus(&mut index, "s", &on_each(2, 300), &["a"]), [uuid("a", 0), uuid("a", 2)]);
}

#[test]
fn linked_gpus_are_preferred_for_whole_gpus() {
    let mut inventory = node("a", 8);
    link(&mut inventory, &[&[0, 2, 4, 6], &[1, 3, 5, 7]]);
    let mut index = index(&[("a", inventory)]);
    assert_eq!(reserved_gpus(&mut index, "p1", &whole(2), &["a"]), [uuid("a", 0), uuid("a", 2)]);
    assert_eq!(reserved_gpus(&mut index, "p2", &whole(4), &["a"]), [1, 3, 5, 7].map(|at| uuid("a", at)));
    assert_eq!(reserved_gpus(&mut index, "p3", &whole(2), &["a"]), [uuid("a", 4), uuid("a", 6)]);
}

#[test]
fn linked_set_on_another_node_is_better_than_an_unlinked_one() {
    let (apart, mut linked) = (node("a", 2), node("b", 4));
    link(&mut linked, &[&[1, 3]]);
    let mut index = index(&[("a", apart), ("b", linked)]);
    assert_eq!(reserved_gpus(&mut index, "p", &whole(2), &["a", "b"]), [uuid("b", 1), uuid("b", 3)]);
}

#[test]
fn gpus_of_one_numa_node_are_preferred_where_links_make_no_difference() {
    for groups in [&[][..], &[&[0, 1, 2, 3][..]]] {
        let mut inventory = node("a", 4);
        link(&mut inventory, groups);
        for (gpu, numa) in inventory.gpus.iter_mut().zip([0, 1, 0, 1]) {
            gpu.numa = Some(numa);
        }
        let mut index = index(&[("a", inventory)]);
        // The most used GPUs are of different NUMA nodes.
        index.confirm("p1", "a", &[uuid("a", 2)], &share(500, Some(GIB)));
        index.confirm("p2", "a", &[uuid("a", 3)], &share(600, Some(GIB)));
        assert_eq!(reserved_gpus(&mut index, "p", &on_each(2, 300), &["a"]), [uuid("a", 1), uuid("a", 3)]);
        assert_eq!(reserved_gpus(&mut index, "q", &on_each(2, 300), &["a"]), [uuid("a", 0), uuid("a", 2)]);
    }
}

#[test]
fn linked_gpus_are_preferred_to_those_of_one_numa_node() {
    let mut inventory = node("a", 4);
    link(&mut inventory, &[&[0, 1], &[2, 3]]);
    for (gpu, numa) in inventory.gpus.iter_mut().zip([0, 1, 0, 1]) {
        gpu.numa = Some(numa);
    }
    let mut index = index(&[("a", inventory)]);
    assert_eq!(reserved_gpus(&mut index, "p", &on_each(2, 300), &["a"]), [uuid("a", 0), uuid("a", 1)]);
}

#[test]
fn pods_of_a_gang_get_different_gpus_and_other_pods_are_not_concerned() {
    let of = |gang: &str| Demand { gang: Some(gang.into()), ..share(300, Some(GIB)) };
    let mut index = index(&[("a", node("a", 2))]);
    assert_eq!(reserved_gpus(&mut index, "rank-0", &of("ns/ring"), &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "rank-1", &of("ns/ring"), &["a"]), [uuid("a", 1)]);
    let reason = "gpu-0 (GPU-a-0) has a pod of the same gang; gpu-1 (GPU-a-1) has a pod of the same gang";
    assert_eq!(refusal(&mut index, &of("ns/ring"), "a"), reason);
    assert_eq!(reserved_gpus(&mut index, "other", &of("other/ring"), &["a"]), [uuid("a", 0)]);
    assert_eq!(reserved_gpus(&mut index, "none", &share(300, Some(GIB)), &["a"]), [uuid("a", 0)]);
    assert!(index.release("rank-0"));
    assert_eq!(reserved_gpus(&mut index, "rank-0", &of("ns/ring"), &["a"]), [uuid("a", 0)]);
}

#[test]
fn pod_of_a_gang_goes_to_the_node_of_the_others_while_it_fits_there() {
    let of = |gang: &str| Demand { gang: Some(gang.into()), ..share(300, Some(GIB)) };
    let mut index = index(&[("a", node("a", 2)), ("b", node("b", 2))]);
    assert_eq!(reserved_gpus(&mut index, "rank-0", &of("ns/ring"), &["b"]), [uuid("b", 0)]);
    // Without the gang it would be the more used GPU, or that of the first node.
    index.confirm("other", "a", &[uuid("a", 0)], &share(600, Some(GIB)));
    assert_eq!(reserved_gpus(&mut index, "other-ring", &of("other/ring"), &["a", "b"]), [uuid("a", 0)]);
    // Of several candidates the caller may choose any: only the node of the gang is one.
    let offer = index.reserve("rank-1", &of("ns/ring"), ["a", "b"].into_iter(), 2, u64::MAX);
    let PlacementOutcome::Reserved(places) = offer else { panic!("{offer:?}") };
    let chosen = places.iter().map(|place| (&*place.node, &*place.gpus[0])).collect::<Vec<_>>();
    assert_eq!(chosen, [("b", &*uuid("b", 1))]);
    // It is not refused where its gang has no room.
    assert_eq!(reserved_gpus(&mut index, "rank-2", &of("ns/ring"), &["a", "b"]), [uuid("a", 1)]);
}

/// Two GPUs of three for each of two pods that ask for 0.4 of both, and a third pod of the same size for which these two are left.
fn circle() -> Index {
    let mut index = index(&[("a", node("a", 3))]);
    for (pod, gpus) in [("p01", [0, 1]), ("p12", [1, 2])] {
        index.confirm(pod, "a", &gpus.map(|at| uuid("a", at)), &on_each(2, 400));
    }
    index
}

#[test]
fn third_gang_of_a_circle_is_refused_if_the_three_ask_for_more_than_all_of_the_time() {
    let mut index = circle();
    // Each GPU has room, and 0.2 is what the others leave of the time.
    assert_eq!(
        refusal(&mut index, &Demand { uuids: vec![uuid("a", 0), uuid("a", 2)], ..on_each(2, 300) }, "a"),
        "no slot of 0.300 in which the gang runs on all of its GPUs: with two gangs on some of them it asks for 1.100 of the same time"
    );
    let PlacementOutcome::Refused(reasons) = reserve(&mut index, "q", &on_each(2, 600), &["a"]) else {
        panic!()
    };
    assert_eq!(
        reasons[0].1.to_string(),
        "no slot of 0.600 in which the gang runs on all of its GPUs: with two gangs on some of them it asks for 1.400 of the same time"
    );
    assert_eq!(reasons[0].1.summary(), "no slot of 0.600 for the gang beside those of others");
    assert!(reasons[0].1.is_resolvable());
    assert_eq!(reserved_gpus(&mut index, "fits", &on_each(2, 200), &["a"]), [uuid("a", 0), uuid("a", 1)]);
    index.release("fits");
    // A pod of one GPU, a latency-critical one and one of the same circle without the middle need no third slot.
    assert_eq!(reserved_gpus(&mut index, "one", &share(600, Some(GIB)), &["a"]), [uuid("a", 0)]);
    index.release("one");
    let critical = Demand { latency_critical: true, ..on_each(2, 600) };
    assert_eq!(reserved_gpus(&mut index, "critical", &critical, &["a"]), [uuid("a", 0), uuid("a", 2)]);
    index.release("critical");
    assert!(index.release("p12"));
    assert_eq!(reserved_gpus(&mut index, "q", &on_each(2, 600), &["a"]), [uuid("a", 0), uuid("a", 1)]);
}

#[test]
fn set_with_a_slot_is_chosen_where_a_more_used_one_has_none() {
    let mut index = index(&[("a", node("a", 4))]);
    for (pod, gpus) in [("p01", [0, 1]), ("p12", [1, 2])] {
        index.confirm(pod, "a", &gpus.map(|at| uuid("a", at)), &on_each(2, 400));
    }
    assert_eq!(reserved_gpus(&mut index, "q", &on_each(2, 600), &["a"]), [uuid("a", 0), uuid("a", 3)]);
}

#[test]
fn pods_of_a_gang_ask_for_a_slot_together() {
    let of = |milli: u32, at: u32| Demand {
        gang: Some("ns/ring".into()),
        uuids: vec![uuid("a", at)],
        ..share(milli, Some(GIB))
    };
    let mut index = circle();
    assert_eq!(reserved_gpus(&mut index, "rank-0", &of(400, 0), &["a"]), [uuid("a", 0)]);
    assert_eq!(
        refusal(&mut index, &of(400, 2), "a"),
        "no slot of 0.400 in which the gang runs on all of its GPUs: with two gangs on some of them it asks for 1.200 of the same time"
    );
    assert!(index.release("p01"));
    assert_eq!(reserved_gpus(&mut index, "rank-1", &of(400, 2), &["a"]), [uuid("a", 2)]);
}

#[test]
fn halves_of_several_gpus_are_not_a_whole_one() {
    let mut index = index(&[("a", node("a", 4))]);
    for number in 0..4 {
        let only = Demand { uuids: vec![uuid("a", number)], ..share(500, None) };
        assert_eq!(reserved_gpus(&mut index, &format!("half-{number}"), &only, &["a"]), [uuid("a", number)]);
    }
    let message = refusal(&mut index, &whole(2), "a");
    assert!(message.starts_with("0 of 2 GPUs fit: gpu-0 (GPU-a-0) is in use by 1 pod"), "{message}");
    assert!(message.ends_with("; 1 more GPU does not fit either"), "{message}");
    index.release("half-1");
    index.release("half-3");
    assert_eq!(reserved_gpus(&mut index, "two", &whole(2), &["a"]), [uuid("a", 1), uuid("a", 3)]);
    // A GPU that one pod has whole accepts no other, not even one without a quota.
    let message = refusal(&mut index, &Demand { uuids: vec![uuid("a", 1)], ..share(0, Some(1)) }, "a");
    assert_eq!(message, "gpu-1 (GPU-a-1) is given to one pod as a whole");
    let nothing = Demand { uuids: vec![uuid("a", 1)], ..share(0, Some(0)) };
    assert!(reserved_gpus(&mut index, "nothing", &nothing, &["a"]).is_empty());
}
