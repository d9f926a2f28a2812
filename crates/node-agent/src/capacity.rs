//! What the node offers to the cluster: device slots to kubelet, and countable amounts in the node's status.

use std::sync::Arc;

use sluice_placement::Countable;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

use crate::device_plugin::DeviceSlots;
use crate::pods::assign::Assignments;
use crate::tasks::replace_if_new;

/// The capacity of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Device slots.
    pub slots: DeviceSlots,
    /// Time and memory. `None` if the node has no GPU, or while it is unknown what pods hold on an unhealthy one.
    pub amounts: Option<Countable>,
}

impl NodeCapacity {
    /// The capacity of these GPUs. `assignments` is `None` until the node's pods are known; pods then count as nothing.
    #[must_use]
    pub fn of(inventory: &NodeInventory, assignments: Option<&Assignments>) -> Self {
        let requested = |gpu: &str| assignments.and_then(|known| known.requested.get(gpu)).copied();
        let amounts = inventory.countable(|gpu| requested(gpu).unwrap_or_default());
        let gpus = u64::try_from(inventory.gpus.len()).unwrap_or(u64::MAX);
        let total = gpus.saturating_mul(u64::from(inventory.seats_per_gpu));
        let is_known = assignments.is_some() || inventory.gpus.iter().all(|gpu| gpu.healthy);
        Self {
            slots: DeviceSlots { total, healthy: amounts.slots.min(total) },
            amounts: (is_known && gpus > 0).then_some(amounts),
        }
    }
}

/// Publishes the capacity whenever GPUs or pods change, until these no longer come.
pub async fn publish(
    capacity: watch::Sender<NodeCapacity>,
    mut gpus: watch::Receiver<NodeInventory>,
    mut assignments: watch::Receiver<Option<Arc<Assignments>>>,
) {
    loop {
        let now = {
            let known = assignments.borrow_and_update();
            NodeCapacity::of(&gpus.borrow_and_update(), known.as_deref())
        };
        capacity.send_if_modified(|last| replace_if_new(last, now));
        tokio::select! {
            changed = gpus.changed() => if changed.is_err() { return },
            changed = assignments.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests;
