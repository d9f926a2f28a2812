//! The driver's interface as the agent uses it, so that the rest can be tested without a driver.

use std::ops::ControlFlow;

pub use sluice_placement::inventory::Gpu;
pub use sluice_process_memory::ProcessMemory;
use thiserror::Error;

use super::health::Fault;

/// The GPUs of this node as a driver knows them. Every call may block as long as a faulty driver blocks, so it must
/// run on a thread that may wait.
pub trait GpuDriver: Send + Sync + 'static {
    /// Reads the state of every GPU that the driver lists.
    ///
    /// # Errors
    /// The driver as a whole does not answer.
    fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable>;

    /// Waits for events of the GPUs and passes each to `on_event`, until that returns `Break`.
    ///
    /// The first event is [`DriverEvent::Listening`]. Without events, `on_event` is called with [`DriverEvent::Quiet`]
    /// about once a second, so that it can break off.
    ///
    /// # Errors
    /// Events cannot be received (any more). The caller may try again later.
    fn listen(
        &self,
        on_event: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
    ) -> Result<(), DriverUnavailable>;

    /// Reads the number of processes on a GPU, and the driver's version.
    ///
    /// # Errors
    /// The driver does not answer, does not know the GPU, or does not count its processes.
    fn usage(&self, uuid: &str) -> Result<Usage, DriverUnavailable> {
        Err(DriverUnavailable(format!("it does not report the processes on {uuid}")))
    }

    /// Reads the memory of every process on a GPU.
    ///
    /// # Errors
    /// The driver does not answer, does not know the GPU, or does not report its processes.
    fn process_memory(&self, uuid: &str) -> Result<Vec<ProcessMemory>, DriverUnavailable> {
        Err(DriverUnavailable(format!("it does not report the memory of processes on {uuid}")))
    }

    /// Reads the energy that a GPU has drawn since its driver was loaded, millijoules. `None`: it is not known.
    fn energy_mj(&self, _uuid: &str) -> Option<u64> {
        None
    }
}

/// Use of a GPU at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Version of the driver.
    pub driver: String,
    /// Processes that have a context on the GPU, in pods or not.
    pub processes: u32,
}

/// The driver does not answer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the NVIDIA driver does not answer: {0}")]
pub struct DriverUnavailable(pub String);

/// One GPU as a scan found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScannedGpu {
    /// It reported its identity. The condition counts, not the GPU's `healthy`, which follows from several scans.
    Known(Gpu, Condition),
    /// It is not given to pods: a GPU in MIG mode, or an instance that cannot be given.
    NotGiven {
        /// Its UUID.
        uuid: String,
        /// The GPU's ordinal.
        index: u32,
        /// Why not.
        why: Fault,
    },
    /// The driver lists it, but it does not report its identity.
    Unidentified {
        /// Its ordinal.
        index: u32,
        /// The driver's answer.
        why: Fault,
    },
}

impl ScannedGpu {
    /// The GPU's UUID, if it reported one.
    pub fn uuid(&self) -> Option<&str> {
        match self {
            ScannedGpu::Known(gpu, _) => Some(&gpu.uuid),
            ScannedGpu::NotGiven { uuid, .. } => Some(uuid),
            ScannedGpu::Unidentified { .. } => None,
        }
    }
}

/// Condition of a GPU at a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It answers, and the driver requests no recovery action.
    Good,
    /// It does not answer correctly, or the driver requests a recovery action.
    Bad(Fault),
}

/// An event that the driver delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEvent {
    /// From now on no event is missed.
    Listening,
    /// No event for a while.
    Quiet,
    /// An Xid. The GPU is unknown if it no longer reports its identity.
    Xid {
        /// The GPU's UUID.
        uuid: Option<String>,
        /// The number.
        code: u64,
    },
}
