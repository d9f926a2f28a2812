//! Events about the health of GPUs: one on the node, one on each pod that has the GPU.

use std::collections::BTreeMap;

use sluice_placement::inventory::{Gpu, NodeInventory};
use tokio::sync::watch;

use super::events::{EventQueue, Reason, about_node, about_pod};
use crate::managers::ManagerStatus;
use crate::pods::{AssignmentsWatch, PodsWatch};
use crate::self_test::Outcome;

/// Publishes every change of health until the inventory ends. A GPU that is unhealthy from the start is published too.
pub async fn publish_health_changes(
    node: String,
    mut inventory: watch::Receiver<NodeInventory>,
    mut assignments: AssignmentsWatch,
    pods: PodsWatch,
    events: EventQueue,
) {
    // Until then it is unknown which pods are on a GPU that is unhealthy from the start.
    if assignments.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut before = NodeInventory::new(0, Vec::new());
    loop {
        let now = inventory.borrow_and_update().clone();
        for change in health_changes(&before, &now) {
            events.publish(about_node(&node), change.reason, change.note.clone());
            let assigned = assignments.borrow().clone().unwrap_or_default();
            let known = pods.borrow().clone().unwrap_or_default();
            let on_it = assigned.gpus.iter().filter(|(_, gpus)| gpus.contains(&change.gpu));
            for pod in on_it.filter_map(|(uid, _)| known.get(uid)) {
                events.publish(about_pod(pod), change.reason, change.note.clone());
            }
        }
        before = now;
        if inventory.changed().await.is_err() {
            return;
        }
    }
}

/// Publishes every self-test outcome that limits the scheduling, until the managers' statuses end.
pub async fn publish_self_tests(
    node: String,
    mut managers: watch::Receiver<BTreeMap<String, ManagerStatus>>,
    events: EventQueue,
) {
    let mut before: BTreeMap<String, Outcome> = BTreeMap::new();
    loop {
        let now: BTreeMap<String, Outcome> = managers
            .borrow_and_update()
            .iter()
            .map(|(gpu, status)| (gpu.clone(), status.self_test.clone()))
            .collect();
        for (gpu, outcome) in now.iter().filter(|(gpu, outcome)| before.get(*gpu) != Some(*outcome)) {
            if let Some(warning) = outcome.warning() {
                events.publish(about_node(&node), Reason::GpuSelfTest, format!("{gpu}: {warning}"));
            }
        }
        before = now;
        if managers.changed().await.is_err() {
            return;
        }
    }
}

/// A GPU whose health changed.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    gpu: String,
    reason: Reason,
    note: String,
}

fn health_changes(before: &NodeInventory, now: &NodeInventory) -> Vec<Change> {
    let mut changes = Vec::new();
    for gpu in &now.gpus {
        let was_healthy = before.gpu(&gpu.uuid).is_none_or(|gpu| gpu.healthy);
        match (was_healthy, gpu.healthy) {
            (true, false) => {
                changes.push(unhealthy(gpu, gpu.unhealthy_reason.as_deref().unwrap_or("no reason known")))
            }
            (false, true) => changes.push(Change {
                gpu: gpu.uuid.clone(),
                reason: Reason::GpuRecovered,
                note: format!("{} ({}) is healthy again", gpu.uuid, gpu.model),
            }),
            (true, true) | (false, false) => {}
        }
    }
    let gone = before.gpus.iter().filter(|gpu| now.gpu(&gpu.uuid).is_none());
    changes.extend(gone.map(|gpu| unhealthy(gpu, "it is gone")));
    changes
}

fn unhealthy(gpu: &Gpu, why: &str) -> Change {
    Change {
        gpu: gpu.uuid.clone(),
        reason: Reason::GpuUnhealthy,
        note: format!("{} ({}) is not healthy: {why}; it gets no new pods", gpu.uuid, gpu.model),
    }
}

#[cfg(test)]
mod tests;
