//! `kubectl sluice explain`: why a pod waits, where it would fit, and which pods are in its way. Whether it fits is decided by the
//! same index that the scheduler extender uses.

mod lines;

use std::cell::Cell;
use std::iter::repeat_n;

use serde::Serialize;
use sluice_placement::annotations::{GpuRequest, NoDemand};
use sluice_placement::{Demand, Evictable, Index, NodeReasons, Preemptor};

use crate::cluster_state::{ClusterState, GpuRoom, PodFacts, share, sum};

/// Sets of pods that the search for the pods in the way compares on each node.
const CHECKS: usize = 10_000;

/// The output of the command.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Explanation {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    #[serde(flatten)]
    pub(crate) state: PodState,
    /// What it asks for; absent if it asks for no GPU, or its request cannot be read.
    pub(crate) asks: Option<Asks>,
    /// The answer for each node with GPUs. Empty unless the pod waits.
    pub(crate) nodes: Vec<NodeAnswer>,
    /// Its events, the latest last.
    pub(crate) events: Vec<PodEvent>,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Asks {
    /// Number of GPUs.
    pub(crate) gpus: u32,
    /// Guaranteed share of each.
    pub(crate) share: f64,
    /// Largest share of each.
    pub(crate) limit: f64,
    /// Memory on each; absent: the same share of the GPU's memory as of its time.
    pub(crate) memory_bytes: Option<u64>,
    /// Only these models; empty: any.
    pub(crate) models: Vec<String>,
    /// Only these GPUs; empty: any.
    pub(crate) uuids: Vec<String>,
    /// `sluice.dev/priority`.
    pub(crate) priority: &'static str,
}

/// The state of a pod in relation to its GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum PodState {
    /// It asks for no GPU of Sluice.
    NoRequest,
    /// Its annotations contain mistakes.
    InvalidRequest {
        /// All mistakes, in words.
        mistakes: String,
    },
    /// All its containers have ended, and its GPUs are free for others.
    Ended {
        /// `Succeeded` or `Failed`.
        phase: String,
    },
    /// It is being deleted and was never bound.
    Deleted,
    /// It has its GPUs.
    Assigned {
        /// The node.
        node: String,
        /// UUIDs.
        gpus: Vec<String>,
        /// Its phase; `Pending` while its containers have not started.
        phase: String,
    },
    /// It is bound to a node without GPUs: a scheduler that does not call the extender has placed it.
    BoundWithoutGpus {
        /// The node.
        node: String,
        /// The scheduler.
        scheduler: String,
    },
    /// It is not bound to a node yet.
    Waiting {
        /// The scheduler that is to place it.
        scheduler: String,
        /// kube-scheduler's report about the latest attempt; absent before the first one.
        message: Option<String>,
        /// The node on which kube-scheduler evicts pods for it.
        nominated_node: Option<String>,
    },
}

/// Whether the pod fits on a node's GPUs. Other needs of the pod (processors, taints, selectors) are in kube-scheduler's message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    pub(crate) fits: bool,
    /// GPUs on which it fits, one of the possible choices; empty if it does not fit.
    pub(crate) gpus: Vec<GpuOnNode>,
    /// Why it does not fit, as the extender words it.
    pub(crate) reason: Option<String>,
    /// Pods, `namespace/name`, after whose end it would fit. Empty if no end of pods is enough.
    pub(crate) fits_after_end_of: Vec<String>,
    /// Free share of all GPUs of the node together.
    pub(crate) free_share: f64,
    /// The largest free share of one GPU.
    pub(crate) largest_free_share: f64,
    /// The node has enough free share in all, and too little on each GPU.
    pub(crate) fragmented: bool,
    /// kube-scheduler places no new pods on it.
    pub(crate) cordoned: bool,
}

/// A GPU by its ordinal and its UUID.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GpuOnNode {
    pub(crate) gpu: String,
    pub(crate) index: u32,
}

/// An event of a pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PodEvent {
    /// `Normal` or `Warning`.
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Explanation {
    pub(crate) fn of(pod: &PodFacts, cluster: &ClusterState, events: Vec<PodEvent>) -> Self {
        let state = PodState::of(pod);
        let nodes = match (&state, pod.demand()) {
            (PodState::Waiting { .. }, Ok(demand)) => answers(pod, &demand, cluster),
            _ => Vec::new(),
        };
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            asks: Asks::of(pod),
            state,
            nodes,
            events,
        }
    }
}

impl Asks {
    fn of(pod: &PodFacts) -> Option<Self> {
        let request = GpuRequest::from_annotations(&pod.annotations).ok()??;
        Some(Self {
            gpus: request.demand.gpus,
            share: share(request.demand.share),
            limit: share(request.limit),
            memory_bytes: request.demand.memory_bytes,
            models: request.demand.models,
            uuids: request.demand.uuids,
            priority: request.class.name(),
        })
    }
}

impl PodState {
    fn of(pod: &PodFacts) -> Self {
        if pod.has_ended() {
            return Self::Ended { phase: pod.phase.clone() };
        }
        if let Some(node) = pod.node.clone()
            && let Some(assignment) = pod.assignment()
        {
            return Self::Assigned { node, gpus: assignment.gpus, phase: pod.phase.clone() };
        }
        match pod.demand() {
            Err(NoDemand::NoRequest) => return Self::NoRequest,
            Err(NoDemand::Mistakes(mistakes)) => {
                return Self::InvalidRequest { mistakes: mistakes.to_string() };
            }
            Ok(_) => {}
        }
        let scheduler = pod.scheduler.clone();
        match pod.node.clone() {
            Some(node) => Self::BoundWithoutGpus { node, scheduler },
            None if pod.is_ending => Self::Deleted,
            None => Self::Waiting {
                scheduler,
                message: pod.scheduling_failure.clone(),
                nominated_node: pod.nominated_node.clone(),
            },
        }
    }
}

fn answers(pod: &PodFacts, demand: &Demand, cluster: &ClusterState) -> Vec<NodeAnswer> {
    let index = cluster.index();
    let rooms = cluster.rooms(&index);
    let answers = cluster.nodes.iter().map(|node| {
        let room = rooms.get(node.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let free_share = sum(room.iter().map(|gpu| gpu.free_share));
        let largest_free_share = room.iter().map(|gpu| gpu.free_share).fold(0.0, f64::max);
        let answer = NodeAnswer {
            node: node.name.clone(),
            fits: false,
            gpus: Vec::new(),
            reason: None,
            fits_after_end_of: Vec::new(),
            free_share,
            largest_free_share,
            fragmented: false,
            cordoned: node.is_cordoned,
        };
        if let Err(why) = &node.inventory {
            return NodeAnswer { reason: Some(format!("its GPUs are unknown: {why}")), ..answer };
        }
        match index.place_on_node(&pod.uid, demand, &node.name) {
            Ok(placement) => {
                let gpus = placement.gpus.iter().zip(&placement.ordinals);
                let gpus = gpus.map(|(gpu, index)| GpuOnNode { gpu: gpu.to_string(), index: *index });
                NodeAnswer { fits: true, gpus: gpus.collect(), ..answer }
            }
            Err(reasons) => NodeAnswer {
                fits_after_end_of: pods_in_the_way(pod, demand, &node.name, cluster, &index),
                fragmented: is_fragmented(demand, &reasons, room),
                reason: Some(reasons.to_string()),
                ..answer
            },
        }
    });
    answers.collect()
}

/// Whether the free shares of all GPUs would be enough together, but not on the GPUs one by one.
fn is_fragmented(demand: &Demand, reasons: &NodeReasons, room: &[GpuRoom]) -> bool {
    let (gpus, asked) = (demand.gpus as usize, share(demand.share));
    let together = sum(room.iter().map(|gpu| gpu.free_share));
    let enough = room.iter().filter(|gpu| gpu.free_share >= asked).count();
    reasons.is_resolvable() && together >= sum(repeat_n(asked, gpus)) && enough < gpus
}

/// Pods on the node after whose end the pod would fit, chosen as for a preemption: pods that are ending anyway, then those of the
/// lowest priorities, and none without need. Nothing is evicted: a user may wait for them or delete them. So the pod's own priority
/// does not matter.
fn pods_in_the_way(
    pod: &PodFacts,
    demand: &Demand,
    node: &str,
    cluster: &ClusterState,
    index: &Index,
) -> Vec<String> {
    let demand = Demand { pod_priority: i32::MAX, ..demand.clone() };
    let checks_left = Cell::new(CHECKS);
    let preemptor = Preemptor {
        pod: &pod.uid,
        demand: &demand,
        disruptions_allowed: &[],
        needs: &[],
        checks_left: &checks_left,
    };
    let evictable =
        |uid: &str| Some(Evictable { is_ending: cluster.pod(uid)?.is_ending, ..Evictable::default() });
    let victims = index.victims(node, &preemptor, evictable);
    let pods = victims.into_iter().flat_map(|victims| victims.pods);
    pods.map(|uid| cluster.pod(&uid).map_or_else(|| uid.to_string(), PodFacts::title)).collect()
}

#[cfg(test)]
mod tests;
