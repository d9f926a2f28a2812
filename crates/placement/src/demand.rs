//! The demand of one pod, in the units that placement counts.

use sluice_units::Share;

use crate::annotations::Amount;
use crate::inventory::label_value;

/// The demand of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Guaranteed share of one GPU, or number of whole GPUs.
    pub amount: Amount,
    /// Memory on each GPU; `None`: the same share of the GPU's memory as of its time, rounded down.
    pub memory_bytes: Option<u64>,
    /// Only GPUs of one of these models; empty: any. As the driver names it, or as the node label spells it.
    pub models: Vec<String>,
    /// Only these GPUs; empty: any.
    pub uuids: Vec<String>,
    /// The pod is latency-critical: it shares a GPU with another such pod only if it fits nowhere else.
    pub latency_critical: bool,
    /// Value of the pod's PriorityClass; 0 without one. Only a pod with a higher value may evict it.
    pub pod_priority: i32,
}

impl Demand {
    /// This amount on GPUs of any kind, for a pod that is not latency-critical. `memory_bytes` as in the field; whole GPUs ignore it.
    pub fn new(amount: Amount, memory_bytes: Option<u64>) -> Self {
        Self {
            amount,
            memory_bytes,
            models: Vec::new(),
            uuids: Vec::new(),
            latency_critical: false,
            pod_priority: 0,
        }
    }

    /// The guaranteed share of each of its GPUs.
    pub fn share_per_gpu(&self) -> Share {
        match self.amount {
            Amount::Share(share) => share,
            Amount::Whole(_) => Share::ONE,
        }
    }

    /// Bytes on a GPU with this much memory.
    pub fn memory_on(&self, gpu_memory_bytes: u64) -> u64 {
        match (self.amount, self.memory_bytes) {
            (Amount::Whole(_), _) => gpu_memory_bytes,
            (Amount::Share(_), Some(bytes)) => bytes,
            (Amount::Share(share), None) => share.of(gpu_memory_bytes),
        }
    }

    /// Whether it takes whole GPUs, which no other pod can use then.
    pub fn is_whole(&self) -> bool {
        matches!(self.amount, Amount::Whole(_))
    }

    /// Number of GPUs, and of device slots (`sluice.dev/gpu`).
    pub fn gpus(&self) -> u32 {
        match self.amount {
            Amount::Share(_) => 1,
            Amount::Whole(gpus) => gpus,
        }
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
