//! The request and the result of a scan.

use super::{ControlDescriptor, Obstacle, ProcessKey};
use sluice_core::pod_cgroup::PodCgroup;
use std::collections::HashSet;
use std::os::fd::OwnedFd;

/// A request for a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanRequest {
    /// The manager's clock, nanoseconds.
    pub(crate) now: u64,
    /// The clients' pods, by UID.
    pub(crate) pods: HashSet<String>,
    /// Processes that have attached: they are never inspected.
    pub(crate) attached: HashSet<ProcessKey>,
    /// Processes that are inspected even if no inspection is due.
    pub(crate) requested: HashSet<ProcessKey>,
}

/// An inspected process that can be controlled.
#[derive(Debug)]
pub(crate) struct ControllableProcess {
    pub(crate) key: ProcessKey,
    pub(crate) command: String,
    pub(crate) pod: PodCgroup,
    pub(crate) pidfd: OwnedFd,
    /// Empty: it has closed the driver, or uses only other GPUs.
    pub(crate) descriptors: Vec<ControlDescriptor>,
}

/// A process that cannot be controlled.
#[derive(Debug)]
pub(crate) struct UncontrollableProcess {
    pub(crate) key: ProcessKey,
    pub(crate) command: String,
    pub(crate) pod: PodCgroup,
    pub(crate) pidfd: OwnedFd,
    pub(crate) obstacle: Obstacle,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanResult {
    /// All candidates that have not attached. `None`: the scan failed.
    pub(crate) candidates: Option<HashSet<ProcessKey>>,
    /// The processes inspected in this scan.
    pub(crate) controllable: Vec<ControllableProcess>,
    /// All processes of which the last inspection met an obstacle.
    pub(crate) uncontrollable: Vec<UncontrollableProcess>,
}
