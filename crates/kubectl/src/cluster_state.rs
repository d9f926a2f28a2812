//! The cluster's nodes and pods, reduced to what the commands show, and the placement index that follows from them.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_placement::annotations::{Assignment, NoDemand, SpecDemand};
use sluice_placement::inventory::NodeInventory;
use sluice_placement::{Demand, GpuReservations, Index, Strategy};
use sluice_units::{Share, WHOLE_PPM};

/// All nodes with Sluice's annotation, and all pods that have not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterState {
    /// Ordered by name.
    pub(crate) nodes: Vec<NodeFacts>,
    pub(crate) pods: Vec<PodFacts>,
}

/// A node with GPUs.
#[derive(Debug, Clone)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    /// Its GPUs, or the reason why its annotation cannot be read.
    pub(crate) inventory: Result<NodeInventory, String>,
    /// kube-scheduler places no new pods on it.
    pub(crate) is_cordoned: bool,
    /// It gives its GPUs by claims (DRA), and none to annotated pods.
    pub(crate) gives_gpus_by_claims: bool,
}

/// A pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Those of Sluice.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) spec: SpecDemand,
    pub(crate) scheduler: String,
    /// The node that it is bound to.
    pub(crate) node: Option<String>,
    /// The node that kube-scheduler keeps for it while pods there end.
    pub(crate) nominated_node: Option<String>,
    pub(crate) phase: String,
    /// Its deletion was requested.
    pub(crate) is_ending: bool,
    /// kube-scheduler's report about the latest attempt that failed.
    pub(crate) scheduling_failure: Option<String>,
}

impl PodFacts {
    /// `namespace/name`.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// All its containers have ended for good.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(crate) fn demand(&self) -> Result<Demand, NoDemand> {
        Demand::of_pod(&self.namespace, &self.annotations, self.spec)
    }

    /// Its GPUs; `None` for a pod that is not bound, or that has none.
    pub(crate) fn assignment(&self) -> Option<Assignment> {
        self.node.as_ref()?;
        Assignment::of_pod(&self.namespace, &self.annotations, self.spec).ok()?
    }

    /// It requests a GPU and is not bound to a node yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.node.is_none() && !self.is_ending && !matches!(self.demand(), Err(NoDemand::NoRequest))
    }
}

/// One GPU and what is promised of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GpuRoom {
    /// UUID.
    pub(crate) gpu: String,
    /// Ordinal on the node; absent for a GPU that only pods name.
    pub(crate) index: Option<u32>,
    pub(crate) model: Option<String>,
    /// It takes new pods.
    pub(crate) healthy: bool,
    pub(crate) unhealthy_reason: Option<String>,
    /// Share of its time that pods are guaranteed.
    pub(crate) promised_share: f64,
    /// Share of its time that a new pod can be guaranteed.
    pub(crate) free_share: f64,
    /// Memory that pods may request.
    pub(crate) memory_bytes: u64,
    pub(crate) promised_memory_bytes: u64,
    pub(crate) free_memory_bytes: u64,
    /// Number of pods on it.
    pub(crate) pods: u32,
}

impl ClusterState {
    /// The index as the extender has it after it has read these objects. Offers that the extender has made and that are not
    /// bound yet are not in it.
    pub(crate) fn index(&self) -> Index {
        // The strategy chooses between GPUs that fit. Whether a pod fits does not depend on it.
        let mut index = Index::new(Strategy::Binpack);
        for node in &self.nodes {
            if let Ok(inventory) = &node.inventory {
                index.set_node(&node.name, inventory);
            }
        }
        for pod in self.pods.iter().filter(|pod| !pod.has_ended()) {
            if let (Some(node), Some(assignment)) = (&pod.node, pod.assignment()) {
                index.confirm(&pod.uid, node, &assignment.gpus, &assignment.demand);
            }
            if let (None, false, Some(node), Ok(demand)) =
                (&pod.node, pod.is_ending, &pod.nominated_node, pod.demand())
            {
                index.nominate(&pod.uid, node, &demand);
            }
        }
        let is_ending = |uid: &str| self.pod(uid).is_some_and(|pod| pod.is_ending);
        index.place_nominated(is_ending);
        index
    }

    /// The pod with this UID.
    pub(crate) fn pod(&self, uid: &str) -> Option<&PodFacts> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    /// The GPUs of each node, in the order of its inventory.
    pub(crate) fn rooms(&self, index: &Index) -> BTreeMap<&str, Vec<GpuRoom>> {
        let mut reservations: BTreeMap<&str, Vec<GpuReservations>> =
            index.uses().map(|(node, uses)| (&**node, uses)).collect();
        let nodes = self.nodes.iter().map(|node| {
            let uses = reservations.remove(node.name.as_str()).unwrap_or_default();
            (node.name.as_str(), uses.iter().map(|one| room(node, one)).collect())
        });
        nodes.collect()
    }
}

fn room(node: &NodeFacts, reserved: &GpuReservations) -> GpuRoom {
    let gpu = node.inventory.as_ref().ok().and_then(|inventory| inventory.gpu(&reserved.gpu));
    let healthy = gpu.is_some_and(|gpu| gpu.healthy);
    let memory_bytes = gpu.map_or(0, |gpu| gpu.memory_bytes);
    let unhealthy_reason = match gpu {
        None => Some("it is not in the node's inventory".to_owned()),
        Some(gpu) => gpu.unhealthy_reason.clone().filter(|_| !gpu.healthy),
    };
    let free = |amount: u64| if healthy { amount } else { 0 };
    GpuRoom {
        gpu: reserved.gpu.to_string(),
        index: gpu.map(|gpu| gpu.index),
        model: gpu.map(|gpu| gpu.model.clone()),
        healthy,
        unhealthy_reason,
        promised_share: fraction(reserved.ppm),
        free_share: fraction(free(u64::from(WHOLE_PPM).saturating_sub(reserved.ppm))),
        memory_bytes,
        promised_memory_bytes: reserved.memory_bytes,
        free_memory_bytes: free(memory_bytes.saturating_sub(reserved.memory_bytes)),
        pods: reserved.pods,
    }
}

/// Parts per million of a GPU as a fraction.
pub(crate) fn fraction(ppm: u64) -> f64 {
    ppm as f64 / f64::from(WHOLE_PPM)
}

/// The sum of fractions of GPUs, rounded to parts per million, in which shares are exact.
pub(crate) fn sum(fractions: impl Iterator<Item = f64>) -> f64 {
    let whole = f64::from(WHOLE_PPM);
    (fractions.fold(0.0, |sum, fraction| sum + fraction) * whole).round() / whole
}

/// A share as a fraction.
pub(crate) fn share(share: Share) -> f64 {
    fraction(share.ppm().into())
}

#[cfg(test)]
mod tests;
