//! Tests of `slots.rs`.

use super::*;
use crate::capacity::NodeCapacity;
use crate::gpus::fake;
use proptest::prelude::*;
use sluice_placement::inventory::{Gpu, NodeInventory};

fn gpu(index: u32, healthy: bool) -> Gpu {
    Gpu { healthy, ..fake::gpu(index) }
}

/// The slots of a node without pods.
fn slots_of(inventory: &NodeInventory) -> DeviceSlots {
    DeviceSlots::new(&NodeCapacity::of(inventory, None), Some(&HeldSlots::new()))
}

#[test]
fn unhealthy_gpu_makes_the_last_slots_unhealthy() {
    for sick in 0..2 {
        let gpus = (0..2).map(|index| gpu(index, index != sick)).collect();
        let slots = slots_of(&NodeInventory::new(2, gpus));
        let list: Vec<_> =
            slots.devices().into_iter().map(|one| (one.id, one.health, one.topology)).collect();
        let expected = [
            ("sluice-seat-0", "Healthy"),
            ("sluice-seat-1", "Healthy"),
            ("sluice-seat-2", "Unhealthy"),
            ("sluice-seat-3", "Unhealthy"),
        ];
        assert_eq!(list, expected.map(|(id, health)| (id.to_owned(), health.to_owned(), None)));
    }
}

#[test]
fn node_without_gpus_has_no_slots() {
    assert_eq!(slots_of(&NodeInventory::new(10, Vec::new())).devices(), []);
}

#[test]
fn only_listed_ids_are_slots() {
    let slots = DeviceSlots((0..20).map(|number| (number, number < 10)).collect());
    assert_eq!(
        [slots.state_of("sluice-seat-9"), slots.state_of("sluice-seat-10")],
        [SlotState::Healthy, SlotState::Unhealthy]
    );
    for id in [
        "",
        "0",
        "sluice-seat-",
        "sluice-seat-20",
        "sluice-seat-07",
        "sluice-seat-+7",
        "sluice-seat--1",
        "sluice-seat-18446744073709551616",
        "Sluice-seat-1",
        "sluice-seat-1 ",
    ] {
        assert_eq!(slots.state_of(id), SlotState::Unknown, "{id:?}");
    }
}

proptest! {
    #[test]
    fn state_of_each_listed_slot_equals_its_health(per_gpu in 0..20u32, health in prop::collection::vec(any::<bool>(), 0..12)) {
        let gpus = (0..).zip(&health).map(|(index, healthy)| gpu(index, *healthy)).collect();
        let slots = slots_of(&NodeInventory::new(per_gpu, gpus));
        let devices = slots.devices();
        for device in &devices {
            let expected = if device.health == HEALTHY { SlotState::Healthy } else { SlotState::Unhealthy };
            prop_assert_eq!(slots.state_of(&device.id), expected);
        }
        let able = devices.iter().filter(|device| device.health == HEALTHY).count();
        let gpus = health.iter().filter(|healthy| **healthy).count();
        prop_assert_eq!((devices.len(), able), (health.len() * per_gpu as usize, gpus * per_gpu as usize));
    }
}

/// Slots of a node with these numbers of slots, of which pods hold some: `lost…` on a failed GPU, `ended…` have ended.
fn slots_beside(total: u64, healthy: u64, held: &[(u64, &str)]) -> DeviceSlots {
    let named = |prefix: &str| {
        held.iter().map(|(_, pod)| (*pod).to_owned()).filter(|pod| pod.starts_with(prefix)).collect()
    };
    let capacity = NodeCapacity {
        slots: SlotCounts { total, healthy },
        pods_on_failed_gpus: named("lost"),
        ended_pods: named("ended"),
        amounts: None,
    };
    let held = held.iter().map(|(number, pod)| (*number, (*pod).to_owned())).collect();
    DeviceSlots::new(&capacity, Some(&held))
}

#[test]
fn held_slots_have_the_health_of_their_pods_gpus_and_free_ones_complete_the_number() {
    // Two GPUs with four slots each: the healthy one, and two slots that pods of the other one hold.
    let slots =
        slots_beside(8, 6, &[(0, "lost-1"), (7, "kept"), (5, "lost-2"), (4, "ended"), (6, "unknown")]);
    let unhealthy: Vec<u64> =
        slots.0.iter().filter(|(_, healthy)| !**healthy).map(|(number, _)| *number).collect();
    assert_eq!(unhealthy, [0, 5]);
    assert_eq!(slots.counts(), SlotCounts { total: 8, healthy: 6 });
}

#[test]
fn failed_gpu_full_of_pods_takes_no_slot_from_the_healthy_one() {
    let lost: Vec<(u64, &str)> = (0..4).map(|number| (number, "lost")).collect();
    // The scheduler subtracts the four slots of the failed GPU's pods.
    let slots = slots_beside(8, 8, &lost);
    assert_eq!(slots.counts(), SlotCounts { total: 12, healthy: 8 });
    assert_eq!(slots.state_of("sluice-seat-11"), SlotState::Healthy);
}

#[test]
fn slot_in_use_stays_listed_after_the_node_has_fewer_slots() {
    let slots = slots_beside(4, 4, &[(11, "kept")]);
    assert_eq!(slots.state_of("sluice-seat-11"), SlotState::Healthy);
    assert_eq!(slots.counts(), SlotCounts { total: 4, healthy: 4 });
}

#[test]
fn no_slot_is_unhealthy_while_it_is_unknown_which_are_held() {
    let capacity = NodeCapacity::of(&NodeInventory::new(2, vec![gpu(0, true), gpu(1, false)]), None);
    assert_eq!(DeviceSlots::new(&capacity, None).counts(), SlotCounts { total: 4, healthy: 4 });
}

proptest! {
    #[test]
    fn each_held_slot_has_its_pods_health_and_the_number_of_healthy_slots_is_kept(
        gpus in 1..5u64,
        failed in 0..5u64,
        held in prop::collection::btree_map(0..60u64, prop::sample::select(vec!["lost", "kept", "ended"]), 0..40),
    ) {
        let of = |kind: &str| held.values().filter(|pod| **pod == kind).count() as u64;
        let (total, healthy) = (gpus * 10, gpus.saturating_sub(failed) * 10 + of("lost"));
        let list: Vec<_> = held.iter().map(|(number, pod)| (*number, *pod)).collect();
        let slots = slots_beside(total, healthy, &list);
        for (number, pod) in list {
            match pod {
                "lost" => prop_assert_eq!(slots.0.get(&number), Some(&false)),
                "kept" => prop_assert_eq!(slots.0.get(&number), Some(&true)),
                _ => {}
            }
        }
        prop_assert_eq!(slots.counts().healthy, healthy.max(of("kept")));
        prop_assert!(slots.counts().total >= total);
    }
}
