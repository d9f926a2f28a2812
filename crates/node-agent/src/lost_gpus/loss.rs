//! Which GPUs are lost, and which pods have them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sluice_placement::inventory::NodeInventory;

use crate::gpus::Skipped;
use crate::pods::Assignments;

/// A GPU on which no program can work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostGpu {
    /// Why, for events.
    pub why: String,
    /// Uids of the pods that have it and have not ended.
    pub pods: BTreeSet<String>,
    /// It is lost for longer than the grace period.
    pub is_overdue: bool,
}

/// The lost GPUs by UUID.
pub type LostGpus = BTreeMap<String, LostGpu>;

/// The lost GPUs: those in `found`, and those that pods have and the inventory does not contain. None is overdue.
///
/// A skipped GPU that has not reported its identity may be any of the absent ones. If programs may go on there, no absent GPU is lost.
pub(super) fn lost_gpus(
    found: &BTreeMap<String, String>,
    inventory: &NodeInventory,
    skipped: &[Skipped],
    assignments: &Assignments,
) -> LostGpus {
    let mut lost: LostGpus = found
        .iter()
        .map(|(gpu, why)| (gpu.clone(), LostGpu { why: why.clone(), ..LostGpu::default() }))
        .collect();
    let may_work = skipped.iter().any(|gpu| gpu.uuid.is_none() && !gpu.reason.ends_work());
    for (pod, gpus) in &assignments.named {
        for gpu in gpus {
            if !may_work && inventory.gpu(gpu).is_none() {
                lost.entry(gpu.clone()).or_insert_with(|| LostGpu {
                    why: "the driver has not listed it since the agent started".to_owned(),
                    ..LostGpu::default()
                });
            }
            if let Some(lost) = lost.get_mut(gpu) {
                lost.pods.insert(pod.clone());
            }
        }
    }
    lost
}

/// The pods of the overdue GPUs, and why they are to be evicted.
pub(super) fn pods_to_evict(lost: &LostGpus) -> BTreeMap<String, String> {
    let overdue = lost.iter().filter(|(_, gpu)| gpu.is_overdue);
    let pods = overdue.flat_map(|(uuid, gpu)| {
        let reason = format!("{uuid} is lost: {}", gpu.why);
        gpu.pods.iter().map(move |pod| (pod.clone(), reason.clone()))
    });
    pods.collect()
}

#[cfg(test)]
mod tests;
