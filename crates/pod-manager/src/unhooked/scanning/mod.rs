//! Unhooked processes: processes of the clients' pods that use the GPU without the hook.
//!
//! A thread of its own makes the scans (`UnhookedScanner`), because a scan reads /proc and makes thousands of driver queries. One trait,
//! [`ProcessDiscovery`], is the boundary to the kernel and the driver: [`KernelDiscovery`] implements it, and tests replace it.
//! docs/design/unhooked-processes.md describes a scan, its cost in driver queries, and what is not found. A process whose groups are found
//! but cannot be controlled ([`ObstacleKind`]) is counted, and reported once. In the cases `too_many` and `driver` it is stopped by the
//! driver's lock instead (`DriverLocks`).

mod descriptor_lists;
mod driver_lock;
mod inspection_schedule;
mod kernel_discovery;
mod lock_helper;
mod mappings;
mod ownership_check;
mod ownership_queue;
mod pod_limits;
mod pod_processes;
mod scanner;
mod turns;

pub(crate) use driver_lock::DriverLocks;
pub use kernel_discovery::KernelDiscovery;
pub(crate) use ownership_check::NotChecked;
pub use ownership_check::OwnershipCheck;
pub(crate) use scanner::{ScanRequest, ScanResult, UnhookedScanner};

use sluice_comm::attach::ContextHandles;
use sluice_core::pod_cgroup::PodCgroup;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{OwnedFd, RawFd};

pub use sluice_core::ProcessKey;
pub use sluice_core::processes::{GrantPageMapping, Obstacle, ObstacleKind};

/// Finds unhooked processes and their control descriptors. The scanner's thread calls it, so it may block.
pub trait ProcessDiscovery: Send {
    /// The processes in this scope that have the driver open, had it open in an earlier call, or cannot be inspected.
    /// Errors: the manager has no descriptors or memory left, so the list would be incomplete.
    fn candidates(&mut self, scope: &Scope) -> io::Result<CandidateList>;

    /// The requested processes, those of `among` and of the pods whose number of descriptors has changed since the last call, and new ones, as far
    /// as they are in this scope. Between two complete lists this costs one system call a process. Kernels before Linux 6.2 report no number:
    /// there, only the requested and the new ones.
    /// Errors: as [`Self::candidates`].
    fn changed(
        &mut self,
        among: &HashSet<ProcessKey>,
        requested: &HashSet<ProcessKey>,
        scope: &Scope,
    ) -> io::Result<Vec<Candidate>>;

    /// Finds the channel groups that a process has on this GPU now.
    fn inspect(&mut self, candidate: &Candidate, walk: Walk) -> Inspection;

    /// Whether a process maps this page where it says. `None`: that cannot be decided.
    fn maps_page(&mut self, process: ProcessKey, page: &GrantPageMapping) -> Option<bool>;

    /// Whether a process has mapped a hook (`libsluice.so`), so that it may still attach. A process can map any file of this name, and has some
    /// more time then.
    fn maps_hook(&mut self, process: ProcessKey) -> bool;

    /// Continues the search for clients that no inspection has found, with at most this many queries.
    fn continue_search(&mut self, candidates: &[Candidate], queries: u32) -> ContinuedSearch;

    /// Processor time of one driver query, microseconds.
    fn query_us(&self) -> u32 {
        1
    }

    /// Whether a process owns the clients that it has announced.
    fn owns(&mut self, check: &OwnershipCheck) -> Ownership;
}

/// The processes that a scan looks at.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// All processes of these pods, by UID.
    pub pods: HashSet<String>,
    /// Attached processes of clients that are no pods, and the names of their clients. No process without the hook belongs to such a client.
    pub named: HashMap<ProcessKey, String>,
}

/// How far an inspection walks through the handles of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// To all groups, some 10,000 queries a client: for a process whose groups are to be controlled.
    Complete,
    /// To the groups among the first handles, some 600 queries a client: for a process that has announced its groups.
    Short,
}

/// A process of a pod that has the driver open.
#[derive(Debug)]
pub struct Candidate {
    /// Its id and start time.
    pub key: ProcessKey,
    /// Its command name; used only in messages.
    pub command: String,
    /// Its pod, read after the pidfd was opened; for a process of [`Scope::named`] its client's name in place of the UID.
    pub pod: PodCgroup,
    /// Readable when the process ends.
    pub pidfd: OwnedFd,
    /// The numbers of its descriptors that may lead to the driver. A change causes an inspection.
    pub descriptors: Vec<RawFd>,
}

/// The result of a complete search for candidates.
#[derive(Debug, Default)]
pub struct CandidateList {
    /// The candidates that the search has looked at.
    pub candidates: Vec<Candidate>,
    /// Candidates of earlier searches for which it had no time. One of the next searches looks at them.
    pub postponed: HashSet<ProcessKey>,
}

/// The result of an inspection, and its cost.
#[derive(Debug)]
pub struct Inspection {
    /// The control descriptors; none if the process has closed the driver. An error if not all of its groups can be controlled,
    /// because a process of which a part continues is not stopped.
    pub result: Result<Vec<ControlDescriptor>, Obstacle>,
    /// Driver queries that were made.
    pub queries: u32,
}

/// The result of an ownership check, and its cost.
#[derive(Debug)]
pub struct Ownership {
    /// Whether the process owns the clients, or why that cannot be decided.
    pub result: Result<bool, Obstacle>,
    /// Driver queries, listed descriptors and comparisons.
    pub queries: u32,
}

/// The result of a continued search, and its cost.
#[derive(Debug, Default)]
pub struct ContinuedSearch {
    /// Processes with a client that was not known.
    pub found: HashSet<ProcessKey>,
    /// Driver queries that were made.
    pub queries: u32,
}

/// A control descriptor of a process.
#[derive(Debug)]
pub struct ControlDescriptor {
    /// A copy of the process's descriptor.
    pub descriptor: OwnedFd,
    /// The groups on this GPU that are controlled through it.
    pub contexts: Vec<ContextHandles>,
}

impl ControlDescriptor {
    /// Client and group handle of each group.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (u32, u32)> {
        self.contexts.iter().map(|context| (context.client, context.channel_group))
    }
}
