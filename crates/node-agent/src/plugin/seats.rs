//! Seats: how many containers may use this node's GPUs, as the devices that kubelet counts.

use sluice_placement::inventory::NodeInventory;
use sluice_proto::deviceplugin::Device;

/// Kubelet's words for health, from its API's constants.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";
const PREFIX: &str = "sluice-seat-";

/// The seats of a node: numbers 0 to `total`, of which those from `healthy` on are out of order.
///
/// Numbers only ever come and go at the top, so a seat that a container holds keeps its name whatever happens to GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seats {
    /// Those of all GPUs.
    pub total: u64,
    /// Those of the healthy GPUs.
    pub healthy: u64,
}

/// What a seat's name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// It can be given.
    Healthy,
    /// It exists, but too few GPUs are healthy for it.
    Unhealthy,
    /// The node has no seat of this name.
    Unknown,
}

impl Seats {
    /// The seats that these GPUs make.
    pub fn of(inventory: &NodeInventory) -> Self {
        let gpus = u64::try_from(inventory.gpus.len()).unwrap_or(u64::MAX);
        Self { total: gpus.saturating_mul(u64::from(inventory.seats_per_gpu)), healthy: inventory.seats() }
    }

    /// The list for kubelet. Without topology: a seat lies on no NUMA node.
    pub fn devices(self) -> Vec<Device> {
        let device = |number| {
            let health = if number < self.healthy { HEALTHY } else { UNHEALTHY };
            Device { id: format!("{PREFIX}{number}"), health: health.to_owned(), topology: None }
        };
        (0..self.total).map(device).collect()
    }

    /// What this name means here.
    pub fn seat(self, id: &str) -> Seat {
        match number(id) {
            Some(number) if number < self.healthy => Seat::Healthy,
            Some(number) if number < self.total => Seat::Unhealthy,
            _ => Seat::Unknown,
        }
    }
}

/// The number in a name that is written as we write it: no sign, no leading zeros.
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
            let seats = Seats::of(&NodeInventory::new(2, gpus));
            let list: Vec<_> =
                seats.devices().into_iter().map(|one| (one.id, one.health, one.topology)).collect();
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
        assert_eq!(Seats::of(&NodeInventory::new(10, Vec::new())).devices(), []);
    }

    #[test]
    fn only_the_names_that_were_listed_are_seats() {
        let seats = Seats { total: 20, healthy: 10 };
        assert_eq!(
            [seats.seat("sluice-seat-9"), seats.seat("sluice-seat-10")],
            [Seat::Healthy, Seat::Unhealthy]
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
            assert_eq!(seats.seat(id), Seat::Unknown, "{id:?}");
        }
    }

    proptest! {
        #[test]
        fn list_and_names_agree(per_gpu in 0..20u32, health in prop::collection::vec(any::<bool>(), 0..12)) {
            let gpus = (0..).zip(&health).map(|(index, healthy)| gpu(index, *healthy)).collect();
            let seats = Seats::of(&NodeInventory::new(per_gpu, gpus));
            let devices = seats.devices();
            for device in &devices {
                let expected = if device.health == HEALTHY { Seat::Healthy } else { Seat::Unhealthy };
                prop_assert_eq!(seats.seat(&device.id), expected);
            }
            let able = devices.iter().filter(|device| device.health == HEALTHY).count();
            let gpus = health.iter().filter(|healthy| **healthy).count();
            prop_assert_eq!((devices.len(), able), (health.len() * per_gpu as usize, gpus * per_gpu as usize));
        }
    }
}
