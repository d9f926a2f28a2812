//! What the node offers to the cluster: device slots to kubelet, and countable amounts in the node's status.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_placement::Countable;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

use crate::pods::assign::Assignments;
use crate::tasks::replace_if_new;

/// Numbers of device slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots of all GPUs, and those that pods of absent GPUs hold.
    pub total: u64,
    /// Slots of the healthy GPUs, and those that pods of unhealthy and of absent GPUs hold: the scheduler subtracts the slots of
    /// all pods of the node from this number.
    pub healthy: u64,
}

/// The capacity of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    /// Device slots.
    pub slots: SlotCounts,
    /// Uids of the pods of which a GPU is unhealthy or absent.
    pub pods_on_failed_gpus: BTreeSet<String>,
    /// Uids of the pods that have ended.
    pub ended_pods: BTreeSet<String>,
    /// Time and memory. `None` if the node has no GPU, or while it is unknown what pods hold on an unhealthy one.
    pub amounts: Option<Countable>,
}

impl NodeCapacity {
    /// The capacity of these GPUs. `assignments` is `None` until the node's pods are known; pods then count as nothing.
    ///
    /// What pods request of an absent GPU is added, slots included. NVML has not listed such a GPU since the agent started. The
    /// scheduler and kubelet subtract the requests of all pods of the node, so they would otherwise subtract these from the other
    /// GPUs.
    #[must_use]
    pub fn of(inventory: &NodeInventory, assignments: Option<&Assignments>) -> Self {
        let requested = |gpu: &str| assignments.and_then(|known| known.requested.get(gpu)).copied();
        let mut amounts = inventory.countable(|gpu| requested(gpu).unwrap_or_default());
        let gpus = u64::try_from(inventory.gpus.len()).unwrap_or(u64::MAX);
        let of_gpus = gpus.saturating_mul(u64::from(inventory.seats_per_gpu));
        let mut slots = SlotCounts { total: of_gpus, healthy: amounts.slots.min(of_gpus) };
        let is_present = |uuid: &str| inventory.gpus.iter().any(|gpu| gpu.uuid == uuid);
        let by_gpu = assignments.into_iter().flat_map(|known| &known.requested);
        for (_, absent) in by_gpu.filter(|(uuid, _)| !is_present(uuid)) {
            amounts += *absent;
            slots.total = slots.total.saturating_add(absent.slots);
            slots.healthy = slots.healthy.saturating_add(absent.slots);
        }
        let is_known = assignments.is_some() || inventory.gpus.iter().all(|gpu| gpu.healthy);
        let is_healthy = |uuid: &String| inventory.gpu(uuid).is_some_and(|gpu| gpu.healthy);
        let named = assignments.into_iter().flat_map(|known| &known.named);
        let failed = named.filter(|(_, gpus)| !gpus.iter().all(is_healthy));
        Self {
            slots,
            pods_on_failed_gpus: failed.map(|(uid, _)| uid.clone()).collect(),
            ended_pods: assignments.map(|known| known.ended.clone()).unwrap_or_default(),
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
