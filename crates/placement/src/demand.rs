//! The demand of one pod, in the units that placement counts.

use std::sync::Arc;

use sluice_units::Share;

use crate::annotations::Amount;
use crate::inventory::label_value;

/// The demand of one pod: this share and this memory on each of some GPUs of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Number of GPUs. At least 1.
    pub gpus: u32,
    /// Device slots (`sluice.dev/gpu`) on each GPU: one for each container that gets the GPUs and runs as long as the pod. At least 1.
    pub slots: u32,
    /// Guaranteed share of each GPU; zero: only time that the others leave.
    pub share: Share,
    /// Memory on each GPU; `None`: the same share of the GPU's memory as of its time, rounded down.
    pub memory_bytes: Option<u64>,
    /// Only GPUs of one of these models; empty: any. As the driver names it, or as the node label spells it.
    pub models: Vec<String>,
    /// Only these GPUs; empty: any.
    pub uuids: Vec<String>,
    /// The pod is latency-critical: it shares a GPU with another such pod only if it fits nowhere else.
    pub latency_critical: bool,
    /// Its memory may leave the GPU for that of other pods, to the memory of the host.
    pub overcommits: bool,
    /// Namespace and name of the pod's gang. Two pods of a gang never share a GPU: they run at the same time, and NCCL refuses two ranks
    /// on one GPU.
    pub gang: Option<Arc<str>>,
    /// Value of the pod's PriorityClass; 0 without one. Only a pod with a higher value may evict it.
    pub pod_priority: i32,
}

impl Demand {
    /// This amount on GPUs of any kind, for a pod that is not latency-critical. A share is one of a single GPU. `memory_bytes`
    /// as in the field; whole GPUs ignore it.
    pub fn new(amount: Amount, memory_bytes: Option<u64>) -> Self {
        let (gpus, share, memory_bytes) = match amount {
            Amount::Share(share) => (1, share, memory_bytes),
            Amount::Whole(gpus) => (gpus, Share::ONE, None),
        };
        Self {
            gpus,
            slots: 1,
            share,
            memory_bytes,
            models: Vec::new(),
            uuids: Vec::new(),
            latency_critical: false,
            overcommits: false,
            gang: None,
            pod_priority: 0,
        }
    }

    /// Bytes on a GPU with this much memory.
    pub fn memory_on(&self, gpu_memory_bytes: u64) -> u64 {
        self.memory_bytes.unwrap_or_else(|| self.share.of(gpu_memory_bytes))
    }

    /// Whether it takes all time and memory of its GPUs, which no other pod can use then.
    pub fn is_whole(&self) -> bool {
        self.share == Share::ONE && self.memory_bytes.is_none()
    }
}

/// A demand with its model keys computed once.
#[derive(Debug, Clone)]
pub(crate) struct PreparedDemand<'a> {
    pub(crate) demand: &'a Demand,
    pub(crate) model_keys: Vec<String>,
}

impl<'a> PreparedDemand<'a> {
    pub(crate) fn new(demand: &'a Demand) -> Self {
        Self { demand, model_keys: demand.models.iter().map(|model| model_key(model)).collect() }
    }
}

/// A model's name for comparison: as the node's label spells it.
pub(crate) fn model_key(model: &str) -> String {
    label_value(model).unwrap_or_else(|| model.to_owned())
}
