//! What one pod asks of a GPU, in the terms that placement counts in.

use crate::annotations::{Amount, GpuRequest, WHOLE_MILLI};
use crate::inventory::label_value;

/// How much of how many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// A guaranteed share of one GPU in thousandths, 0 to 1000; 0 is a pod that only uses what is left.
    Share {
        /// What is guaranteed. What the pod may use beyond it (its limit) is no matter of placement.
        quota_milli: u32,
    },
    /// This many GPUs, each entirely.
    Whole {
        /// How many.
        gpus: u32,
    },
}

/// What one pod asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// How much.
    pub take: Take,
    /// Memory on each GPU; `None` is the same part of the GPU's memory as of its time, rounded down.
    pub memory_bytes: Option<u64>,
    /// Only GPUs of one of these models; empty is any. As the driver says it, or as the node label spells it.
    pub models: Vec<String>,
    /// Only these GPUs; empty is any.
    pub uuids: Vec<String>,
}

impl Demand {
    /// A share of any GPU.
    pub fn share(quota_milli: u32, memory_bytes: Option<u64>) -> Self {
        Self { take: Take::Share { quota_milli }, memory_bytes, models: Vec::new(), uuids: Vec::new() }
    }

    /// Whole GPUs of any kind.
    pub fn whole(gpus: u32) -> Self {
        Self { take: Take::Whole { gpus }, memory_bytes: None, models: Vec::new(), uuids: Vec::new() }
    }

    /// Thousandths that it takes of each of its GPUs.
    pub fn milli_per_gpu(&self) -> u32 {
        match self.take {
            Take::Share { quota_milli } => quota_milli,
            Take::Whole { .. } => WHOLE_MILLI,
        }
    }

    /// Bytes that it takes of a GPU that has this many.
    pub fn memory_on(&self, gpu_memory_bytes: u64) -> u64 {
        match (self.take, self.memory_bytes) {
            (Take::Whole { .. }, _) => gpu_memory_bytes,
            (Take::Share { .. }, Some(bytes)) => bytes,
            (Take::Share { quota_milli }, None) => {
                let share = u128::from(gpu_memory_bytes) * u128::from(quota_milli) / u128::from(WHOLE_MILLI);
                // At most the GPU's memory for quotas up to 1000.
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }

    /// It takes its GPUs from everyone else.
    pub fn is_whole(&self) -> bool {
        matches!(self.take, Take::Whole { .. })
    }

    /// GPUs that it needs.
    pub fn gpus(&self) -> usize {
        match self.take {
            Take::Share { .. } => 1,
            Take::Whole { gpus } => usize::try_from(gpus).unwrap_or(usize::MAX),
        }
    }
}

impl From<&GpuRequest> for Demand {
    fn from(request: &GpuRequest) -> Self {
        let take = match request.amount {
            Amount::Share { quota_milli, limit_milli: _ } => Take::Share { quota_milli },
            Amount::Whole { gpus } => Take::Whole { gpus },
        };
        Self {
            take,
            memory_bytes: request.memory_bytes,
            models: request.models.clone(),
            uuids: request.uuids.clone(),
        }
    }
}

/// A demand with what is compared often made ready.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) demand: &'a Demand,
    pub(crate) model_keys: Vec<String>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(demand: &'a Demand) -> Self {
        Self { demand, model_keys: demand.models.iter().map(|model| model_key(model)).collect() }
    }
}

/// A model's name as it is compared: as the node's label spells it.
pub(crate) fn model_key(model: &str) -> String {
    label_value(model).unwrap_or_else(|| model.to_owned())
}
