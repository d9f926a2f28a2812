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
    NodeCapacity::of(inventory, None).slots
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
    let slots = DeviceSlots { total: 20, healthy: 10 };
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
