//! What is asked of the driver, so that the rest can be tested without one.

use std::ops::ControlFlow;

use thiserror::Error;

use super::health::Sickness;

/// The GPUs of this node as a driver knows them. Every call may block for as long as a sick driver likes: they belong on
/// threads where that hurts nobody.
pub trait Gpus: Send + Sync + 'static {
    /// Looks at every GPU that the driver lists.
    ///
    /// # Errors
    /// The driver as a whole does not answer.
    fn inventory(&self) -> Result<Vec<Sighting>, NoDriver>;

    /// Waits for what GPUs report, and tells each report to `hear` until that breaks off.
    ///
    /// The first report is [`Report::Listening`]. `hear` is called with [`Report::Quiet`] about once a second when there is nothing, so that it can break off.
    ///
    /// # Errors
    /// Nothing can be heard (any more); worth another try later.
    fn listen(&self, hear: &mut dyn FnMut(Report) -> ControlFlow<()>) -> Result<(), NoDriver>;

    /// Who uses a GPU, and under which driver.
    ///
    /// # Errors
    /// The driver does not answer, does not know the GPU, or does not say who uses it.
    fn usage(&self, uuid: &str) -> Result<Usage, NoDriver> {
        Err(NoDriver(format!("it does not say who uses {uuid}")))
    }
}

/// A GPU at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Version of the driver.
    pub driver: String,
    /// Processes that have a context on the GPU, whoever started them.
    pub processes: u32,
}

/// The driver does not answer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the NVIDIA driver does not answer: {0}")]
pub struct NoDriver(pub String);

/// One GPU as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// It said who it is.
    Known(Gpu, Condition),
    /// It is in MIG mode: its parts are not ours to share.
    Mig {
        /// The GPU's UUID.
        uuid: String,
        /// Its ordinal.
        index: u32,
    },
    /// The driver lists it but it does not even say who it is.
    Mute {
        /// Its ordinal.
        index: u32,
        /// What the driver said.
        why: Sickness,
    },
}

impl Sighting {
    /// The GPU's UUID, if it says it.
    pub fn uuid(&self) -> Option<&str> {
        match self {
            Sighting::Known(gpu, _) => Some(&gpu.uuid),
            Sighting::Mig { uuid, .. } => Some(uuid),
            Sighting::Mute { .. } => None,
        }
    }
}

/// What does not change about a GPU, or rarely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's identity, `GPU-…`.
    pub uuid: String,
    /// Ordinal in the driver at the moment.
    pub index: u32,
    /// Product name.
    pub model: String,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// NUMA node of the host.
    pub numa: Option<u32>,
    /// PCI address as in `/sys/bus/pci/devices`.
    pub pci: String,
    /// UUIDs of the GPUs that an active NVLink leads to.
    pub nvlink: Vec<String>,
}

/// How a GPU answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It answers, and the driver asks for nothing to be done about it.
    Good,
    /// It does not answer as it should, or the driver says that something must be done.
    Bad(Sickness),
}

/// What is heard from a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// From here on, nothing is missed.
    Listening,
    /// Nothing for a while.
    Quiet,
    /// An Xid of a GPU; of which one is not known where the GPU no longer says who it is.
    Xid {
        /// The GPU's UUID.
        uuid: Option<String>,
        /// The number.
        code: u64,
    },
}
