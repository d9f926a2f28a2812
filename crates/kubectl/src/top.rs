//! `kubectl sluice top`: each GPU with its pods, from the pods' annotations and from the pages of the node agents, or from the page
//! of one pod-manager alone.

mod lines;
mod page;
mod wait_time;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use sluice_placement::annotations::GpuRequest;

use crate::cluster_state::{ClusterState, GpuRoom, PodFacts, share};

pub(crate) use lines::lines;
pub(crate) use page::Origin;
use wait_time::WaitBuckets;

/// The output of the command.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Top {
    pub(crate) gpus: Vec<GpuRow>,
    /// Pods that request a GPU and are not bound to a node, `namespace/name`.
    pub(crate) waiting: Vec<String>,
    /// What could not be read, and why.
    pub(crate) notes: Vec<String>,
    /// Indexes in `gpus` by UUID; by the node or address for a GPU without one.
    #[serde(skip)]
    positions: HashMap<String, usize>,
}

/// One GPU. What is unknown is `null`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct GpuRow {
    /// Its node, or the address of the page that it comes from.
    pub(crate) node: String,
    /// UUID.
    pub(crate) gpu: Option<String>,
    /// Ordinal on the node.
    pub(crate) index: Option<u32>,
    pub(crate) model: Option<String>,
    pub(crate) healthy: Option<bool>,
    /// Share of its time that pods are guaranteed.
    pub(crate) promised_share: Option<f64>,
    /// Memory that pods may request.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) promised_memory_bytes: Option<u64>,
    /// Attached processes by what enforces their shares: `turn`, `device`, `host`, `token`.
    pub(crate) levels: BTreeMap<String, u64>,
    pub(crate) clients: Vec<ClientRow>,
}

/// One pod on a GPU, or one client of a manager without Kubernetes. What is unknown is `null`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ClientRow {
    /// Absent for a client without a pod.
    pub(crate) namespace: Option<String>,
    /// Name of the pod or client.
    pub(crate) name: String,
    /// `latency-critical`, `high`, `normal` or `best-effort`.
    pub(crate) priority: Option<String>,
    /// Guaranteed share of the GPU's time.
    pub(crate) asked_share: Option<f64>,
    /// Largest share of the GPU's time.
    pub(crate) limit_share: Option<f64>,
    /// Share that it used over the manager's window of 10 s.
    pub(crate) got_share: Option<f64>,
    /// Memory in use, contexts and modules included.
    pub(crate) memory_used_bytes: Option<u64>,
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Memory that may leave the GPU: the part that is there, and the part that is on the host.
    pub(crate) memory_resident_bytes: Option<u64>,
    pub(crate) memory_swapped_bytes: Option<u64>,
    /// Half of its requests waited at most so long for a grant since its first process attached.
    pub(crate) wait_p50_seconds: Option<f64>,
    /// 99 % of its requests waited at most so long.
    pub(crate) wait_p99_seconds: Option<f64>,
    /// Half of the last minute's requests of a latency-critical client took at most so long on the GPU.
    pub(crate) latency_p50_seconds: Option<f64>,
    /// 99 % of them took at most so long.
    pub(crate) latency_p99_seconds: Option<f64>,
    /// Attached processes.
    pub(crate) processes: Option<u64>,
    /// Violations of its limits.
    pub(crate) violations: u64,
    /// Processes that are stopped because of violations.
    pub(crate) stopped_processes: u64,
    /// It is suspended and gets no time.
    pub(crate) suspended: bool,
    #[serde(skip)]
    wait_buckets: WaitBuckets,
}

impl Top {
    /// What the annotations of nodes and pods say.
    pub(crate) fn of_cluster(cluster: &ClusterState) -> Self {
        let rooms = cluster.rooms(&cluster.index());
        let gpus = cluster.nodes.iter().flat_map(|node| {
            let rooms = rooms.get(node.name.as_str()).map(Vec::as_slice).unwrap_or_default();
            rooms.iter().map(|room| GpuRow::of_room(&node.name, room))
        });
        let mut top = Self { gpus: gpus.collect(), ..Self::default() };
        for (position, gpu) in top.gpus.iter().enumerate() {
            let Some(uuid) = gpu.gpu.clone() else { continue };
            // A GPU that only pods name has no index. The node whose inventory has it takes precedence.
            if gpu.index.is_some() {
                top.positions.insert(uuid, position);
            } else {
                top.positions.entry(uuid).or_insert(position);
            }
        }
        for node in &cluster.nodes {
            if let Err(why) = &node.inventory {
                top.notes.push(format!("the GPUs of {} are unknown: {why}", node.name));
            }
        }
        for pod in cluster.pods.iter().filter(|pod| !pod.has_ended()) {
            for uuid in pod.assignment().into_iter().flat_map(|assignment| assignment.gpus) {
                if let Some(&position) = top.positions.get(&uuid) {
                    let gpu = &mut top.gpus[position];
                    gpu.clients.push(ClientRow::of_pod(pod, gpu.memory_bytes.unwrap_or(0)));
                }
            }
        }
        let waiting = cluster.pods.iter().filter(|pod| pod.is_waiting());
        top.waiting = waiting.map(PodFacts::title).collect();
        top.finish();
        top
    }

    /// Computes the quantiles and sorts, after the last page.
    pub(crate) fn finish(&mut self) {
        for gpu in &mut self.gpus {
            for client in &mut gpu.clients {
                client.wait_p50_seconds = client.wait_buckets.quantile(0.5);
                client.wait_p99_seconds = client.wait_buckets.quantile(0.99);
            }
            gpu.clients.sort_by(|one, other| one.key().cmp(&other.key()));
        }
        self.waiting.sort();
        self.notes.sort();
    }
}

impl GpuRow {
    fn of_room(node: &str, room: &GpuRoom) -> Self {
        Self {
            node: node.to_owned(),
            gpu: Some(room.gpu.clone()),
            index: room.index,
            model: room.model.clone(),
            healthy: Some(room.healthy),
            promised_share: Some(room.promised_share),
            memory_bytes: Some(room.memory_bytes),
            promised_memory_bytes: Some(room.promised_memory_bytes),
            ..Self::default()
        }
    }
}

impl ClientRow {
    fn of_pod(pod: &PodFacts, gpu_memory_bytes: u64) -> Self {
        let request = GpuRequest::from_annotations(&pod.annotations).ok().flatten();
        let request = request.as_ref();
        Self {
            namespace: Some(pod.namespace.clone()),
            name: pod.name.clone(),
            priority: request.map(|request| request.class.name().to_owned()),
            asked_share: request.map(|request| share(request.demand.share)),
            limit_share: request.map(|request| share(request.limit)),
            memory_limit_bytes: request.map(|request| request.demand.memory_on(gpu_memory_bytes)),
            ..Self::default()
        }
    }

    fn key(&self) -> (Option<&str>, &str) {
        (self.namespace.as_deref(), &self.name)
    }

    /// `namespace/name`, or the client's name.
    pub(crate) fn title(&self) -> String {
        self.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>() + &self.name
    }
}

#[cfg(test)]
mod tests;
