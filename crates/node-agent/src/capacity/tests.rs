//! Tests of `capacity.rs`.

use std::collections::BTreeMap;

use super::*;
use crate::gpus::fake;
use crate::pods::assign::assign;
use crate::pods::{PodView, Pods};
use crate::prepared_claims::PreparedClaims;
use sluice_placement::inventory::Gpu;

/// GPUs of 10 GiB with two device slots each.
fn node(healthy: &[bool]) -> NodeInventory {
    let gpu = |(index, healthy): (u32, &bool)| Gpu {
        healthy: *healthy,
        memory_bytes: 10 << 30,
        ..fake::gpu(index)
    };
    NodeInventory::new(2, (0..).zip(healthy).map(gpu).collect())
}

/// Assignments in which the pods of one GPU request this.
fn requested(index: u32, slots: u64, milli: u64) -> Assignments {
    let amounts = Countable { slots, milli, memory_mib: 1024 };
    Assignments { requested: BTreeMap::from([(fake::gpu(index).uuid, amounts)]), ..Assignments::default() }
}

#[test]
fn healthy_node_offers_all_that_its_gpus_have() {
    let capacity = NodeCapacity::of(&node(&[true, true]), None);
    assert_eq!(capacity.slots, SlotCounts { total: 4, healthy: 4 });
    assert_eq!(capacity.amounts, Some(Countable { slots: 4, milli: 2000, memory_mib: 20_480 }));
}

#[test]
fn pods_of_an_unhealthy_gpu_take_nothing_from_the_healthy_one() {
    let held = requested(1, 2, 800);
    let capacity = NodeCapacity::of(&node(&[true, false]), Some(&held));
    let amounts = capacity.amounts.unwrap();
    // The scheduler subtracts the requests of all pods of the node.
    assert_eq!((capacity.slots.healthy - 2, amounts.milli - 800), (2, 1000));
    assert_eq!(amounts.memory_mib - 1024, 10_240);
}

#[test]
fn unhealthy_gpu_without_pods_offers_nothing() {
    let capacity = NodeCapacity::of(&node(&[true, false]), Some(&Assignments::default()));
    assert_eq!(capacity.slots, SlotCounts { total: 4, healthy: 2 });
    assert_eq!(capacity.amounts, Some(Countable { slots: 2, milli: 1000, memory_mib: 10_240 }));
}

#[test]
fn unhealthy_gpu_offers_no_more_slots_than_it_has() {
    let capacity = NodeCapacity::of(&node(&[true, false]), Some(&requested(1, 9, 1000)));
    assert_eq!(capacity.slots, SlotCounts { total: 4, healthy: 4 });
}

/// A pod with a request for this quota of these GPUs, by their indexes.
fn pod(uid: &str, quota: &str, gpus: &[u32]) -> PodView {
    let uuids: Vec<String> = gpus.iter().map(|index| fake::gpu(*index).uuid).collect();
    let annotations = [("quota", quota.to_owned()), ("assigned-gpu", uuids.join(","))];
    PodView {
        uid: uid.to_owned(),
        annotations: annotations.map(|(key, value)| (format!("sluice.dev/{key}"), value)).into(),
        ..PodView::default()
    }
}

fn capacity_beside(inventory: &NodeInventory, pods: impl IntoIterator<Item = PodView>) -> NodeCapacity {
    let pods: Pods = pods.into_iter().map(|pod| (pod.uid.clone(), Arc::new(pod))).collect();
    NodeCapacity::of(
        inventory,
        Some(&assign(&pods, &PreparedClaims::new(), inventory, &Assignments::default())),
    )
}

#[test]
fn pod_of_an_absent_gpu_takes_nothing_from_the_healthy_one() {
    let capacity = capacity_beside(&node(&[true]), [pod("a", "1", &[1])]);
    assert_eq!(capacity.slots, SlotCounts { total: 3, healthy: 3 });
    assert_eq!(capacity.amounts, Some(Countable { slots: 3, milli: 2000, memory_mib: 10_240 }));
}

#[test]
fn pod_of_an_absent_and_an_unhealthy_gpu_takes_nothing_from_the_healthy_one() {
    let capacity = capacity_beside(&node(&[true, false]), [pod("a", "2", &[1, 2])]);
    // The healthy GPU, and what the pod requests of its two.
    assert_eq!(capacity.amounts.unwrap().milli, 1000 + 2000);
    assert_eq!(capacity.slots, SlotCounts { total: 5, healthy: 4 });
}

#[test]
fn refused_pod_of_an_unhealthy_gpu_takes_nothing_from_the_healthy_one() {
    let pods = [pod("a", "0.6", &[1]), pod("b", "0.6", &[1])];
    let capacity = capacity_beside(&node(&[true, false]), pods);
    assert_eq!(capacity.amounts.unwrap().milli, 1000 + 1200);
}

#[test]
fn amounts_are_unknown_without_gpus_and_before_pods_are_known() {
    assert_eq!(NodeCapacity::of(&node(&[]), Some(&Assignments::default())).amounts, None);
    let capacity = NodeCapacity::of(&node(&[true, false]), None);
    assert_eq!((capacity.slots.healthy, capacity.amounts), (2, None));
}
