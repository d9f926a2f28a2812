//! The demand of one pod, in the units that placement counts.

use crate::annotations::{Amount, GpuRequest, WHOLE_MILLI};
use crate::inventory::label_value;

/// A share of one GPU, or whole GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandAmount {
    /// A guaranteed share of one GPU in thousandths, 0 to 1000; 0: a pod that only uses time that others leave.
    Share {
        /// The guaranteed share. The limit does not matter for placement.
        quota_milli: u32,
    },
    /// This many whole GPUs.
    Whole {
        /// Number of GPUs.
        gpus: u32,
    },
}

/// The demand of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Share or number of GPUs.
    pub amount: DemandAmount,
    /// Memory on each GPU; `None`: the same share of the GPU's memory as of its time, rounded down.
    pub memory_bytes: Option<u64>,
    /// Only GPUs of one of these models; empty: any. As the driver names it, or as the node label spells it.
    pub models: Vec<String>,
    /// Only these GPUs; empty: any.
    pub uuids: Vec<String>,
}

impl Demand {
    /// A share of any GPU.
    pub fn share(quota_milli: u32, memory_bytes: Option<u64>) -> Self {
        Self {
            amount: DemandAmount::Share { quota_milli },
            memory_bytes,
            models: Vec::new(),
            uuids: Vec::new(),
        }
    }

    /// Whole GPUs of any kind.
    pub fn whole(gpus: u32) -> Self {
        Self {
            amount: DemandAmount::Whole { gpus },
            memory_bytes: None,
            models: Vec::new(),
            uuids: Vec::new(),
        }
    }

    /// Thousandths of each of its GPUs.
    pub fn milli_per_gpu(&self) -> u32 {
        match self.amount {
            DemandAmount::Share { quota_milli } => quota_milli,
            DemandAmount::Whole { .. } => WHOLE_MILLI,
        }
    }

    /// Bytes on a GPU with this much memory.
    pub fn memory_on(&self, gpu_memory_bytes: u64) -> u64 {
        match (self.amount, self.memory_bytes) {
            (DemandAmount::Whole { .. }, _) => gpu_memory_bytes,
            (DemandAmount::Share { .. }, Some(bytes)) => bytes,
            (DemandAmount::Share { quota_milli }, None) => memory_of_share(gpu_memory_bytes, quota_milli),
        }
    }

    /// Whether it takes whole GPUs, which no other pod can use then.
    pub fn is_whole(&self) -> bool {
        matches!(self.amount, DemandAmount::Whole { .. })
    }

    /// Number of GPUs.
    pub fn gpus(&self) -> usize {
        match self.amount {
            DemandAmount::Share { .. } => 1,
            DemandAmount::Whole { gpus } => usize::try_from(gpus).unwrap_or(usize::MAX),
        }
    }
}

/// The memory that belongs to a share of a GPU, rounded down.
fn memory_of_share(gpu_memory_bytes: u64, quota_milli: u32) -> u64 {
    let share = u128::from(gpu_memory_bytes) * u128::from(quota_milli) / u128::from(WHOLE_MILLI);
    // At most the GPU's memory for quotas up to 1000.
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl From<&GpuRequest> for Demand {
    fn from(request: &GpuRequest) -> Self {
        let take = match request.amount {
            Amount::Share { quota_milli, limit_milli: _ } => DemandAmount::Share { quota_milli },
            Amount::Whole { gpus } => DemandAmount::Whole { gpus },
        };
        Self {
            amount: take,
            memory_bytes: request.memory_bytes,
            models: request.models.clone(),
            uuids: request.uuids.clone(),
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
