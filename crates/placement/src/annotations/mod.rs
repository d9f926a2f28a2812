//! What a pod asks of a GPU: its annotations, read once and the same on every layer.
//!
//! The public questions: what does this pod ask for ([`GpuRequest::from_annotations`]), may it be admitted
//! ([`GpuRequest::admit`], which also refuses unknown keys), and which GPUs was it given ([`assigned`]). KubeShare's
//! labels become the same annotations by [`kubeshare::translate`]. Shares are thousandths of one GPU, memory is bytes,
//! durations are nanoseconds; nothing here computes with floats.

mod amount;
mod assigned;
mod decimal;
mod duration;
pub mod keys;
pub mod kubeshare;
#[cfg(test)]
mod kubeshare_tests;
mod lists;
mod mistake;
mod priority;
mod quantity;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use amount::{Amount, MAX_WHOLE_GPUS};
pub use assigned::assigned;
pub use duration::parse_duration;
pub use mistake::{Mistake, Mistakes};
pub use priority::Priority;
pub use quantity::{QuantityError, parse_quantity};

/// Thousandths of a GPU in a whole one.
pub const WHOLE_MILLI: u32 = 1000;

/// What a pod asks for. The client is the pod: share and memory are the pod's, whichever container uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// How the pod is let run.
    pub priority: Priority,
    /// A share of one GPU or a number of whole ones.
    pub amount: Amount,
    /// Bytes asked for by name; without it the pod gets its share of the GPU's memory. Never with whole GPUs.
    pub memory_bytes: Option<u64>,
    /// Latency goal; only for latency-critical pods.
    pub slo_ns: Option<u64>,
    /// Models to choose from; empty is any.
    pub models: Vec<String>,
    /// GPUs to choose from; empty is any.
    pub uuids: Vec<String>,
    /// Containers that get the GPU, init containers included; empty is the first of `spec.containers`.
    pub containers: Vec<String>,
    /// Name and size of the gang; has no effect yet.
    pub gang: Option<(String, u32)>,
}

impl GpuRequest {
    /// Memory promised on one GPU of this size: what was asked for by name, else the share's part, rounded down.
    /// A whole GPU comes with all of its memory.
    #[must_use]
    pub fn memory_on(&self, gpu_memory_bytes: u64) -> u64 {
        match (self.amount, self.memory_bytes) {
            (Amount::Whole { .. }, _) => gpu_memory_bytes,
            (Amount::Share { .. }, Some(bytes)) => bytes,
            (Amount::Share { quota_milli, .. }, None) => {
                let part = u128::from(gpu_memory_bytes) * u128::from(quota_milli) / u128::from(WHOLE_MILLI);
                u64::try_from(part).unwrap_or(gpu_memory_bytes)
            }
        }
    }

    /// How many of `sluice.dev/gpu` the pod takes: one for a share, one per whole GPU.
    #[must_use]
    pub const fn seats(&self) -> u32 {
        match self.amount {
            Amount::Share { .. } => 1,
            Amount::Whole { gpus } => gpus,
        }
    }

    /// Whether a GPU of this model will do. `NVIDIA H100` and `NVIDIA-H100` (as in labels) are the same model.
    #[must_use]
    pub fn wants_model(&self, model: &str) -> bool {
        let spelled = |text: &str| text.replace(' ', "-");
        self.models.is_empty() || self.models.iter().any(|wanted| spelled(wanted) == spelled(model))
    }

    /// Whether this very GPU will do.
    #[must_use]
    pub fn wants_uuid(&self, uuid: &str) -> bool {
        self.uuids.is_empty() || self.uuids.iter().any(|wanted| wanted == uuid)
    }
}
