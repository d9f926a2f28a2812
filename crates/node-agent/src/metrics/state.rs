//! The wanted clients and those in force, as JSON: for users, and for tests that compare annotations with the
//! managers' ledgers.

use serde::Serialize;
use sluice_proto::control::{Class, Client, ClientUsage};

use super::Facts;
use crate::managers::ManagerStatus;

/// The whole page.
#[derive(Debug, Serialize)]
pub struct StatePage {
    /// Name of the node.
    pub node: String,
    /// Every GPU of the node.
    pub gpus: Vec<GpuState>,
    /// Pods that request a GPU and get none.
    pub refused: Vec<RefusedPod>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub struct GpuState {
    /// Its identity.
    pub uuid: String,
    /// Product name.
    pub model: String,
    /// Whether it takes new pods.
    pub healthy: bool,
    /// The reason if not.
    pub unhealthy_reason: Option<String>,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Its manager's process.
    pub manager: Option<ManagerStatus>,
    /// Why the manager's snapshot is missing.
    pub error: Option<String>,
    /// Generation of clients that the manager has in force.
    pub generation: Option<u64>,
    /// Pending attaches: connections that wait for their pod to become a client.
    pub held: Option<u32>,
    /// The clients that the pods' annotations ask for.
    pub wanted: Vec<Limits>,
    /// The clients in the manager's ledger.
    pub in_force: Vec<InForce>,
}

/// What a pod is promised.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// `metadata.uid`.
    pub pod_uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// `best-effort` or `latency-critical`.
    pub class: &'static str,
    /// Guaranteed share, parts per million.
    pub quota_ppm: u32,
    /// Largest share, parts per million.
    pub limit_ppm: u32,
    /// Device memory, bytes.
    pub memory_bytes: u64,
    /// Weight among best-effort clients.
    pub weight: u32,
    /// Latency objective, nanoseconds.
    pub slo_ns: u64,
}

/// A client in its manager's ledger.
#[derive(Debug, Serialize)]
pub struct InForce {
    /// What it is promised.
    #[serde(flatten)]
    pub limits: Limits,
    /// It was removed from the set of clients but still has processes.
    pub left_out: bool,
    /// GPU time charged, nanoseconds.
    pub gpu_time_ns: u64,
    /// Share over the ledger's window, parts per million.
    pub share_ppm: u32,
    /// Reserved now, bytes.
    pub memory_used_bytes: u64,
    /// Most that was ever reserved, bytes.
    pub memory_peak_bytes: u64,
    /// Reservations refused.
    pub memory_denied: u64,
    /// Number of grants.
    pub grants: u64,
    /// Time spent waiting for a grant, nanoseconds.
    pub wait_ns: u64,
    /// Its processes.
    pub processes: Vec<Process>,
}

/// A process of a client.
#[derive(Debug, Serialize)]
pub struct Process {
    /// The number in the manager's pid namespace.
    pub pid: i32,
    /// The container id from its cgroup.
    pub container_id: String,
    /// The container's name, if the pod's status contains the id.
    pub container: Option<String>,
    /// Reserved now, bytes.
    pub memory_used_bytes: u64,
}

/// A pod that gets no GPU.
#[derive(Debug, Serialize)]
pub struct RefusedPod {
    /// `metadata.uid`.
    pub pod_uid: String,
    /// `namespace/name`.
    pub pod: Option<String>,
    /// The reason.
    pub reason: String,
}

impl From<&Facts> for StatePage {
    fn from(facts: &Facts) -> Self {
        let gpus = facts.inventory.iter().flat_map(|inventory| &inventory.gpus);
        let refused = facts.assignments.refused.iter().map(|(uid, why)| RefusedPod {
            pod_uid: uid.clone(),
            pod: facts.pods.get(uid).map(|pod| pod.full_name()),
            reason: why.to_string(),
        });
        Self {
            node: facts.node.clone(),
            gpus: gpus.map(|gpu| gpu_state(gpu, facts)).collect(),
            refused: refused.collect(),
        }
    }
}

fn gpu_state(gpu: &sluice_placement::inventory::Gpu, facts: &Facts) -> GpuState {
    let snapshot = facts.snapshots.get(&gpu.uuid);
    let reported = snapshot.and_then(|snapshot| snapshot.as_ref().ok());
    let wanted = facts.sets.as_ref().and_then(|sets| sets.get(&gpu.uuid));
    GpuState {
        uuid: gpu.uuid.clone(),
        model: gpu.model.clone(),
        healthy: gpu.healthy,
        unhealthy_reason: gpu.unhealthy_reason.clone(),
        memory_bytes: gpu.memory_bytes,
        manager: facts.managers.get(&gpu.uuid).cloned(),
        error: snapshot.and_then(|snapshot| snapshot.as_ref().err().cloned()),
        generation: reported.map(|reported| reported.generation),
        held: reported.map(|reported| reported.held),
        wanted: wanted.into_iter().flatten().map(limits).collect(),
        in_force: reported
            .iter()
            .flat_map(|reported| &reported.clients)
            .filter_map(|usage| in_force(usage, facts))
            .collect(),
    }
}

fn limits(client: &Client) -> Limits {
    Limits {
        pod_uid: client.pod_uid.clone(),
        namespace: client.namespace.clone(),
        pod: client.pod.clone(),
        class: match client.class() {
            Class::BestEffort => "best-effort",
            Class::LatencyCritical => "latency-critical",
            Class::Unspecified => "unspecified",
        },
        quota_ppm: client.quota_ppm,
        limit_ppm: client.limit_ppm,
        memory_bytes: client.memory_bytes,
        weight: client.weight,
        slo_ns: client.slo_ns,
    }
}

fn in_force(usage: &ClientUsage, facts: &Facts) -> Option<InForce> {
    let client = usage.client.as_ref()?;
    let pod = facts.pods.get(&client.pod_uid);
    let processes = usage.processes.iter().map(|process| Process {
        pid: process.pid,
        container_id: process.container_id.clone(),
        container: pod.and_then(|pod| pod.container_names.get(&process.container_id)).cloned(),
        memory_used_bytes: process.memory_used_bytes,
    });
    Some(InForce {
        limits: limits(client),
        left_out: usage.left_out,
        gpu_time_ns: usage.gpu_time_ns,
        share_ppm: usage.share_ppm,
        memory_used_bytes: usage.memory_used_bytes,
        memory_peak_bytes: usage.memory_peak_bytes,
        memory_denied: usage.memory_denied,
        grants: usage.grants,
        wait_ns: usage.wait_ns,
        processes: processes.collect(),
    })
}
