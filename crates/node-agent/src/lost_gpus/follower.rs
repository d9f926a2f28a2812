//! Waits for the end of the grace period of each lost GPU, and carries the policy out.

use std::collections::BTreeMap;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;

use super::flags::{Flags, LostGpuPolicy};
use super::loss::{LostGpus, lost_gpus, pods_to_evict};
use crate::gpus::Skipped;
use crate::node::events::{EventQueue, Reason, about_node};
use crate::node::evictions::{Cause, Eviction};
use crate::node::{LostGpuTaint, WantedTaint};
use crate::pods::{AssignmentsWatch, PodsWatch};
use crate::tasks::replace_if_new;

/// Where losses come from.
#[derive(Debug)]
pub struct Inputs {
    /// The GPUs on which no program can work, by UUID, and why.
    pub found: watch::Receiver<BTreeMap<String, String>>,
    /// The node's GPUs.
    pub inventory: watch::Receiver<NodeInventory>,
    /// The GPUs that the inventory leaves out.
    pub skipped: watch::Receiver<Vec<Skipped>>,
    /// The GPUs of the pods.
    pub assignments: AssignmentsWatch,
    /// The pods.
    pub pods: PodsWatch,
    /// Kubernetes evicts the pods of the GPUs that the inventory contains, by the taints of their devices.
    pub has_device_taints: bool,
}

/// Where losses are published.
#[derive(Debug)]
pub struct Outputs {
    /// The lost GPUs, for metrics.
    pub lost: watch::Sender<LostGpus>,
    /// What becomes of the node's taint. It begins with [`WantedTaint::Keep`]: the agent before this one may have set it.
    pub taint: watch::Sender<WantedTaint>,
    /// The pods to be evicted.
    pub evictions: mpsc::UnboundedSender<Eviction>,
    /// Events on the node.
    pub events: EventQueue,
}

/// Carries the policy out, until the inputs end.
pub async fn follow(node: String, flags: Flags, mut inputs: Inputs, outputs: Outputs) {
    let mut since: BTreeMap<String, Instant> = BTreeMap::new();
    // Cancelled when dropped.
    let mut evicting: BTreeMap<String, DropGuard> = BTreeMap::new();
    loop {
        let mut lost = {
            let assignments = inputs.assignments.borrow_and_update().clone().unwrap_or_default();
            lost_gpus(
                &inputs.found.borrow_and_update(),
                &inputs.inventory.borrow_and_update(),
                &inputs.skipped.borrow_and_update(),
                &assignments,
            )
        };
        let now = Instant::now();
        since.retain(|gpu, _| lost.contains_key(gpu));
        for (gpu, lost) in &mut lost {
            lost.is_overdue = now >= *since.entry(gpu.clone()).or_insert(now) + flags.grace();
        }
        let next = since.values().map(|at| *at + flags.grace()).filter(|at| *at > now).min();
        let before = outputs.lost.borrow().clone();
        report_overdue(&node, flags.policy, &before, &lost, &outputs.events);
        let taint = if flags.policy == LostGpuPolicy::Taint {
            wanted_taint(&lost, &inputs)
        } else {
            WantedTaint::Absent
        };
        outputs.taint.send_if_modified(|last| replace_if_new(last, taint));
        if flags.policy == LostGpuPolicy::Evict {
            let is_ours =
                |gpu: &str| !inputs.has_device_taints || inputs.inventory.borrow().gpu(gpu).is_none();
            let lost = lost.iter().filter(|(gpu, _)| is_ours(gpu));
            let lost = lost.map(|(gpu, lost)| (gpu.clone(), lost.clone())).collect();
            evict(&lost, &inputs.pods, &mut evicting, &outputs.evictions);
        }
        outputs.lost.send_if_modified(|last| replace_if_new(last, lost));
        let end_of_grace = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = inputs.found.changed() => if changed.is_err() { return },
            changed = inputs.inventory.changed() => if changed.is_err() { return },
            changed = inputs.skipped.changed() => if changed.is_err() { return },
            changed = inputs.assignments.changed() => if changed.is_err() { return },
            () = end_of_grace => {}
        }
    }
}

/// Publishes an Event on the node for each GPU whose grace period has just ended.
fn report_overdue(
    node: &str,
    policy: LostGpuPolicy,
    before: &LostGpus,
    lost: &LostGpus,
    events: &EventQueue,
) {
    let follows = match policy {
        LostGpuPolicy::Report => "its pods are not evicted (--lost-gpu-policy=report)",
        LostGpuPolicy::Taint => "the node is tainted",
        LostGpuPolicy::Evict => "its pods are evicted",
    };
    let was_overdue = |uuid: &String| before.get(uuid).is_some_and(|gpu| gpu.is_overdue);
    for (uuid, gpu) in lost.iter().filter(|(uuid, gpu)| gpu.is_overdue && !was_overdue(uuid)) {
        let (why, pods) = (&gpu.why, gpu.pods.len());
        error!(gpu = uuid, why, pods, "GPU is lost for longer than the grace period: {follows}");
        let note = format!("{uuid} is lost: {why}; pods that have it: {pods}; {follows}");
        events.publish(about_node(node), Reason::GpuLost, note);
    }
}

/// The taint for these GPUs. Schedulers avoid the node while it has a healthy GPU, and do not use it otherwise. Until the end of the grace
/// period, a taint from before a restart of the agent stays. Without the assignments it is unknown which absent GPUs are lost.
fn wanted_taint(lost: &LostGpus, inputs: &Inputs) -> WantedTaint {
    if !lost.values().any(|gpu| gpu.is_overdue) {
        let is_known = inputs.assignments.borrow().is_some();
        return if lost.is_empty() && is_known { WantedTaint::Absent } else { WantedTaint::Keep };
    }
    let has_healthy_gpu = inputs.inventory.borrow().gpus.iter().any(|gpu| gpu.healthy);
    WantedTaint::Set(if has_healthy_gpu { LostGpuTaint::PreferNoSchedule } else { LostGpuTaint::NoSchedule })
}

/// Requests the evictions that have become due, and ends those whose GPU is back.
fn evict(
    lost: &LostGpus,
    pods: &PodsWatch,
    evicting: &mut BTreeMap<String, DropGuard>,
    evictions: &mpsc::UnboundedSender<Eviction>,
) {
    let due = pods_to_evict(lost);
    let known = pods.borrow().clone().unwrap_or_default();
    let over: Vec<String> = evicting.keys().filter(|uid| !due.contains_key(*uid)).cloned().collect();
    for uid in over {
        let Some(guard) = evicting.remove(&uid) else { continue };
        // The eviction of a pod that has ended or is gone ends by itself, after its Event.
        if known.get(&uid).is_none_or(|pod| pod.has_ended) {
            guard.disarm();
        }
    }
    for (uid, reason) in due {
        let Some(pod) = known.get(&uid).filter(|_| !evicting.contains_key(&uid)) else { continue };
        let cause_ended = CancellationToken::new();
        evicting.insert(uid, cause_ended.clone().drop_guard());
        // Without a receiver the agent ends.
        let _ = evictions.send(Eviction { pod: pod.clone(), cause: Cause::LostGpu, reason, cause_ended });
    }
}

#[cfg(test)]
mod tests;
