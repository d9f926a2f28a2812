//! Device slots: how many containers may use this node's GPUs, as the devices that kubelet counts.

use sluice_placement::inventory::NodeInventory;
use sluice_proto::deviceplugin::Device;

/// Kubelet's values for health, from the constants of its API.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";
const PREFIX: &str = "sluice-seat-";

/// The device slots of a node: numbers 0 to `total`. Those from `healthy` on are unhealthy.
///
/// Slots are added and removed only at the end, so the slot of a running container keeps its name when GPUs change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlots {
    /// Slots of all GPUs.
    pub total: u64,
    /// Slots of the healthy GPUs.
    pub healthy: u64,
}

/// State of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// It can be allocated.
    Healthy,
    /// It exists, but too few GPUs are healthy for it.
    Unhealthy,
    /// The node has no seat of this name.
    Unknown,
}

impl DeviceSlots {
    /// The slots of these GPUs.
    pub fn of(inventory: &NodeInventory) -> Self {
        let gpus = u64::try_from(inventory.gpus.len()).unwrap_or(u64::MAX);
        Self { total: gpus.saturating_mul(u64::from(inventory.seats_per_gpu)), healthy: inventory.seats() }
    }

    /// The device list for kubelet. It has no topology: a slot belongs to no NUMA node.
    pub fn devices(self) -> Vec<Device> {
        let device = |number| {
            let health = if number < self.healthy { HEALTHY } else { UNHEALTHY };
            Device { id: format!("{PREFIX}{number}"), health: health.to_owned(), topology: None }
        };
        (0..self.total).map(device).collect()
    }

    /// State of the slot with this id.
    pub fn state_of(self, id: &str) -> SlotState {
        match number(id) {
            Some(number) if number < self.healthy => SlotState::Healthy,
            Some(number) if number < self.total => SlotState::Unhealthy,
            _ => SlotState::Unknown,
        }
    }
}

/// The number in an id that is written exactly as this module writes it: no sign, no leading zeros.
fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix(PREFIX)?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_placement::inventory::Gpu;

    fn gpu(index: u32, healthy: bool) -> Gpu {
        Gpu {
            uuid: format!("GPU-{index}"),
            index,
            model: "NVIDIA H200".into(),
            memory_bytes: 1 << 37,
            numa: None,
            pci: String::new(),
            nvlink: Vec::new(),
            healthy,
            unhealthy_reason: None,
        }
    }

    #[test]
    fn a_sick_gpu_takes_the_top_seats_out_of_order_whichever_it_is() {
        for sick in 0..2 {
            let gpus = (0..2).map(|index| gpu(index, index != sick)).collect();
            let slots = DeviceSlots::of(&NodeInventory::new(2, gpus));
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
    fn a_node_without_gpus_has_no_seats() {
        assert_eq!(DeviceSlots::of(&NodeInventory::new(10, Vec::new())).devices(), []);
    }

    #[test]
    fn only_the_names_that_were_listed_are_seats() {
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
        fn list_and_names_agree(per_gpu in 0..20u32, health in prop::collection::vec(any::<bool>(), 0..12)) {
            let gpus = (0..).zip(&health).map(|(index, healthy)| gpu(index, *healthy)).collect();
            let slots = DeviceSlots::of(&NodeInventory::new(per_gpu, gpus));
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
}
