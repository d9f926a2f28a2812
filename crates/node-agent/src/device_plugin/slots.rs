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
    /// The node has no slot with this id.
    Unknown,
}

impl DeviceSlots {
    /// The slots of these GPUs.
    pub fn of(inventory: &NodeInventory) -> Self {
        let gpus = u64::try_from(inventory.gpus.len()).unwrap_or(u64::MAX);
        Self {
            total: gpus.saturating_mul(u64::from(inventory.seats_per_gpu)),
            healthy: inventory.device_slots(),
        }
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
mod tests;
