//! The wanted clients and those in force, as JSON: for users, and for tests that compare annotations with the
//! managers' ledgers.

use serde::Serialize;
use sluice_placement::inventory::Gpu;
use sluice_proto::control::{Client, ClientUsage};

use super::Facts;
use super::client_families::class_name;
use crate::managers::ManagerStatus;

/// The whole page. Names of fields end in their units; ppm: parts per million of the GPU.
#[derive(Serialize)]
pub(super) struct StatePage<'a> {
    node: &'a str,
    /// Why the node offers no device slots.
    no_slots_reason: Option<&'a str>,
    gpus: Vec<GpuState<'a>>,
    /// Pods that request a GPU and get none.
    refused: Vec<RefusedPod<'a>>,
}

#[derive(Serialize)]
struct GpuState<'a> {
    uuid: &'a str,
    model: &'a str,
    healthy: bool,
    unhealthy_reason: Option<&'a str>,
    memory_bytes: u64,
    /// Its manager's process.
    manager: Option<&'a ManagerStatus>,
    /// Why the manager's snapshot is missing.
    error: Option<&'a str>,
    /// Generation of clients that the manager has in force.
    generation: Option<u64>,
    /// Pending attaches: connections that wait for their pod to become a client.
    held: Option<u32>,
    /// The clients that the pods' annotations ask for.
    wanted: Vec<Limits<'a>>,
    /// The clients in the manager's ledger.
    in_force: Vec<InForce<'a>>,
}

/// What a pod is promised.
#[derive(Serialize)]
struct Limits<'a> {
    pod_uid: &'a str,
    namespace: &'a str,
    pod: &'a str,
    class: &'static str,
    quota_ppm: u32,
    limit_ppm: u32,
    memory_bytes: u64,
    /// The memory may leave the GPU.
    overcommit: bool,
    suspended: bool,
    slo_ns: u64,
}

/// A client in its manager's ledger.
#[derive(Serialize)]
struct InForce<'a> {
    #[serde(flatten)]
    limits: Limits<'a>,
    /// It was removed from the set of clients but still has processes.
    left_out: bool,
    gpu_time_ns: u64,
    /// Over the ledger's window.
    share_ppm: u32,
    memory_used_bytes: u64,
    /// Bytes that the driver reports beyond the used ones.
    memory_overhead_bytes: u64,
    memory_peak_bytes: u64,
    /// On the GPU, and may leave it.
    memory_resident_bytes: u64,
    /// Has left the GPU, or waits for room there.
    memory_swapped_bytes: u64,
    /// Reservations refused.
    memory_denied: u64,
    grants: u64,
    wait_ns: u64,
    delayed_ns: u64,
    processes: Vec<Process<'a>>,
}

/// A process of a client.
#[derive(Serialize)]
struct Process<'a> {
    /// The number in the manager's pid namespace.
    pid: i32,
    container_id: &'a str,
    /// The container's name, if the pod's status contains the id.
    container: Option<&'a str>,
    memory_used_bytes: u64,
}

#[derive(Serialize)]
struct RefusedPod<'a> {
    pod_uid: &'a str,
    /// `namespace/name`.
    pod: Option<String>,
    reason: String,
}

pub(super) fn page(facts: &Facts) -> StatePage<'_> {
    let gpus = facts.inventory.iter().flat_map(|inventory| &inventory.gpus);
    let refused = facts.assignments.refused.iter().map(|(uid, why)| RefusedPod {
        pod_uid: uid,
        pod: facts.pods.get(uid).map(|pod| pod.full_name()),
        reason: why.to_string(),
    });
    StatePage {
        node: &facts.node,
        no_slots_reason: facts.loader_refusal.as_deref(),
        gpus: gpus.map(|gpu| gpu_state(gpu, facts)).collect(),
        refused: refused.collect(),
    }
}

fn gpu_state<'a>(gpu: &'a Gpu, facts: &'a Facts) -> GpuState<'a> {
    let snapshot = facts.snapshots.get(&gpu.uuid).map(Result::as_ref);
    let reported = snapshot.and_then(Result::ok);
    let wanted = facts.assignments.sets.get(&gpu.uuid);
    let clients = reported.iter().flat_map(|reported| &reported.clients);
    GpuState {
        uuid: &gpu.uuid,
        model: &gpu.model,
        healthy: gpu.healthy,
        unhealthy_reason: gpu.unhealthy_reason.as_deref(),
        memory_bytes: gpu.memory_bytes,
        manager: facts.managers.get(&gpu.uuid),
        error: snapshot.and_then(Result::err).map(String::as_str),
        generation: reported.map(|reported| reported.generation),
        held: reported.map(|reported| reported.held),
        wanted: wanted.into_iter().flatten().map(limits).collect(),
        in_force: clients.filter_map(|usage| in_force(usage, facts)).collect(),
    }
}

fn limits(client: &Client) -> Limits<'_> {
    Limits {
        pod_uid: &client.pod_uid,
        namespace: &client.namespace,
        pod: &client.pod,
        class: class_name(client.class()).unwrap_or("unspecified"),
        quota_ppm: client.quota_ppm,
        limit_ppm: client.limit_ppm,
        memory_bytes: client.memory_bytes,
        overcommit: client.overcommit,
        suspended: client.suspended,
        slo_ns: client.slo_ns,
    }
}

fn in_force<'a>(usage: &'a ClientUsage, facts: &'a Facts) -> Option<InForce<'a>> {
    let client = usage.client.as_ref()?;
    let pod = facts.pods.get(&client.pod_uid);
    let processes = usage.processes.iter().map(|process| Process {
        pid: process.pid,
        container_id: &process.container_id,
        container: pod.and_then(|pod| pod.container_names.get(&process.container_id)).map(String::as_str),
        memory_used_bytes: process.memory_used_bytes,
    });
    Some(InForce {
        limits: limits(client),
        left_out: usage.left_out,
        gpu_time_ns: usage.gpu_time_ns,
        share_ppm: usage.share_ppm,
        memory_used_bytes: usage.memory_used_bytes,
        memory_overhead_bytes: usage.memory_overhead_bytes,
        memory_peak_bytes: usage.memory_peak_bytes,
        memory_resident_bytes: usage.memory_resident_bytes,
        memory_swapped_bytes: usage.memory_swapped_bytes,
        memory_denied: usage.memory_denied,
        grants: usage.grants,
        wait_ns: usage.wait_ns,
        delayed_ns: usage.delayed_ns,
        processes: processes.collect(),
    })
}
