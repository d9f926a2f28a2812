//! The annotations of a pod: its GPU request and its assigned GPUs, read in the same way by every component.
//!
//! [`GpuRequest::from_annotations`] reads a request. [`GpuRequest::admit`] also refuses unknown keys. [`assigned`]
//! reads the assigned GPUs. [`kubeshare::translate`] translates KubeShare's labels into the same annotations. Shares are
//! thousandths of one GPU, memory is bytes, durations are nanoseconds; no floating-point numbers are used.

mod amount;
mod assigned;
mod decimal;
mod duration;
pub mod keys;
pub mod kubeshare;
mod lists;
mod mistake;
mod priority;
mod quantity;
mod read;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
mod write;

pub use amount::{Amount, MAX_WHOLE_GPUS};
pub use assigned::assigned;
pub use duration::parse_duration;
pub use mistake::{Mistake, Mistakes};
pub use priority::Priority;
pub use quantity::{QuantityError, parse_quantity};

/// Thousandths of a GPU in a whole one.
pub const WHOLE_MILLI: u32 = 1000;

/// The GPU request of a pod. The client is the pod: its containers share the requested share and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// Priority.
    pub priority: Priority,
    /// A share of one GPU or a number of whole ones.
    pub amount: Amount,
    /// Requested bytes; without it the pod gets its share of the GPU's memory. Never with whole GPUs.
    pub memory_bytes: Option<u64>,
    /// Latency goal; only for latency-critical pods.
    pub slo_ns: Option<u64>,
    /// Models to choose from; empty: any.
    pub models: Vec<String>,
    /// GPUs to choose from; empty: any.
    pub uuids: Vec<String>,
    /// Containers that get the GPU, including init containers; empty: the first of `spec.containers`.
    pub containers: Vec<String>,
    /// Name and size of the gang; has no effect yet.
    pub gang: Option<(String, u32)>,
}

impl GpuRequest {
    /// Device slots (`sluice.dev/gpu`) of the pod: one for a share, one per whole GPU.
    #[must_use]
    pub const fn device_slots(&self) -> u32 {
        match self.amount {
            Amount::Share { .. } => 1,
            Amount::Whole { gpus } => gpus,
        }
    }
}
