//! The annotations of a pod: its GPU request and its assigned GPUs, read in the same way by every component.
//!
//! [`GpuRequest::from_annotations`] reads a request. [`GpuRequest::admit`] also refuses unknown keys. [`assigned`]
//! reads the assigned GPUs. [`kubeshare::translate`] translates KubeShare's labels into the same annotations. Shares are
//! written in thousandths of one GPU, memory is bytes, durations are nanoseconds; no floating-point numbers are used.

mod amount;
pub mod keys;
pub mod kubeshare;
mod lists;
mod mistake;
mod pod_demand;
mod read;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
mod write;

pub(crate) use amount::THOUSANDTH_PPM;
pub use amount::{Amount, MAX_GPUS};
pub use mistake::{Mistake, Mistakes};
pub use pod_demand::{Assignment, NoDemand, SpecDemand};
pub use read::{assigned, changeable_mistake};
use sluice_units::Share;
pub use sluice_units::{Class, parse_duration, parse_quantity, parse_thousandths};

use crate::demand::Demand;

/// The GPU request of a pod. The client is the pod: its containers share the requested share and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// Its class.
    pub class: Class,
    /// What placement counts: 1 to 64 GPUs. The annotations do not contain the
    /// pod's PriorityClass: [`Demand::pod_priority`] is 0.
    pub demand: Demand,
    /// Largest share of each GPU: above 0, at least the guaranteed one.
    pub limit: Share,
    /// Latency goal; only for latency-critical pods.
    pub slo_ns: Option<u64>,
    /// Containers that get the GPU, including init containers. Empty: none is named; the webhook chooses, and records its choice.
    pub containers: Vec<String>,
    /// It gets no GPU time, and its memory leaves the GPU if it may.
    pub suspended: bool,
    /// Name of the gang: pods of the namespace with the same name run at the same time on the GPUs of a node.
    pub gang: Option<String>,
}
