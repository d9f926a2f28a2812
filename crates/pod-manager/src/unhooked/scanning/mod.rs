//! Unhooked processes: processes of the clients' pods that use the GPU without the hook.
//!
//! The manager finds them from outside, copies their control descriptors, and schedules their channel groups by hardware, as if a hook
//! had announced them. One trait, [`ProcessDiscovery`], is the boundary to the kernel and the driver: [`KernelDiscovery`] implements it, and tests
//! replace it. A thread of its own makes the scans (`UnhookedScanner`), because a scan reads /proc and makes thousands of driver queries.
//! The data plane requests a scan about once a second (`ScanRequest`): it names the clients' pods and the processes that have attached.
//! No process outside these pods is inspected, and none that holds a token channel. `--adopt auto` enables it; it is off by default,
//! and it needs `--controls`.
//!
//! # A scan
//! 1. **Processes.** The list of /proc is read. A process is recognised by its id and the inode of its folder, so nothing of a known
//!    process is opened. Its cgroup is read when it is new, after 1, 2, 4, 8, 16 and 32 scans, and then every 64th scan.
//! 2. **Candidates.** Of the processes in the clients' pods, those that have the control device open are candidates, and those
//!    that had it open in an earlier scan. The pidfd is opened first, then cgroup, start time and descriptors are read, then the
//!    pidfd is checked: a reused process id is never attributed to the wrong process.
//! 3. **Inspections.** A candidate has two seconds to attach by itself. Then its control descriptors are copied (`pidfd_getfd`) and
//!    the driver is queried through them ([`sluice_nvrm::discovery`]). The next inspection follows after 2, 4 and then every 8 s, and at
//!    the next scan if its descriptors have changed.
//! 4. **Continued search.** The driver has no list of its clients; it answers whether a client with a given number exists, in about
//!    1 µs. There are 2^20 numbers, given out in ascending order to all processes. A client made shortly before the inspection is found
//!    at once. For older ones the search continues from scan to scan.
//!
//! # Cost
//! The unit is one driver query: about 1 µs of one CPU of the node, and of the driver's lock.
//!
//! | bound | value | reason |
//! |---|---|---|
//! | inspections, all pods of one manager | 2^18 queries a second (a quarter of a second of the driver) | a manager must not occupy the driver |
//! | inspections, one pod | an equal part of it, at least 2^14 queries a second (so 17 pods or more exceed the line above) | the tenant decides what an inspection costs, so it delays only its own pod |
//! | one inspection | 2^20 queries; 32 open files, 256 descriptors, 64 channels a group | no program needs more; too many files or descriptors are reported as `too_many`, too many objects or channels as `driver` |
//! | the first search on one file | 2^15 client numbers | included in the inspection |
//! | numbers given out since the last inspection | 2^16 client numbers a file | included in the inspection |
//! | continued search, all pods of one manager | 2^17 queries a scan (an eighth of a second) | all numbers take eight scans; each pod has an equal part |
//! | one ownership check | one query a client, at most 64 clients, and one comparison (kcmp) a control descriptor | the data plane limits the rate of announcements |
//! | /proc | the list of all processes, and 1/64 of their cgroups | reading all cgroups of 10,000 processes takes 160-265 ms, this 10-15 ms (docs/benchmarks.md) |
//! | descriptors of processes that never had the driver open | listed when their number has changed (Linux 6.2), and every 8th scan | a pod may have thousands of processes |
//!
//! A pod pays for an inspection after it was made (`pod_query_limits`). If the inspection cost more than the pod had, the pod pays
//! back before its next inspection, and within a pod the process that has waited longest comes first. So a pod exceeds its bound by at
//! most one inspection. A context costs about 10,000 queries. A new process in a pod of n other processes that cost q queries each is
//! inspected after at most 8 s + n·q / 2^14 s.
//!
//! A node with m managers (one a GPU) has m times these bounds.
//!
//! # What is not found
//! * a client for which the program chose a number outside the driver's numbering, or one that was already queried; only a file without
//!   any known client is searched again, after 600 scans;
//! * a client of an open file that no process has open while it is in transit through a socket;
//! * a process moved into a pod's cgroup when it was more than 64 scans old: it is found up to a minute late;
//! * processes of clients from a resource file, which have no cgroup that identifies them;
//! * which instance of a GPU (MIG) a group is on: the driver names only the GPU.
//!
//! A process whose groups are found but cannot be controlled ([`ObstacleKind`]) is counted, and reported once. In the cases `too_many` and
//! `driver` it is stopped by the driver's lock instead (`DriverLocks`).

mod driver_lock;
mod inspection_schedule;
mod kernel_discovery;
mod lock_helper;
mod ownership;
mod pod_processes;
mod pod_query_limits;
mod scan;
mod scanner;

pub(crate) use driver_lock::DriverLocks;
pub use kernel_discovery::KernelDiscovery;
pub use ownership::OwnershipCheck;
pub(crate) use ownership::OwnershipProof;
pub(crate) use scan::{ControllableProcess, ScanRequest, ScanResult, UncontrollableProcess};
pub(crate) use scanner::UnhookedScanner;

use sluice_comm::attach::ContextHandles;
use sluice_core::pod_cgroup::PodCgroup;
use std::collections::HashSet;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// A process id and the start time in clock ticks since boot.
pub use sluice_nvrm::discovery::ProcessKey;

/// Finds unhooked processes and their control descriptors. The scanner's thread calls it, so it may block.
pub trait ProcessDiscovery: Send {
    /// The processes of these pods (by UID) that have the driver open, had it open in an earlier call, or cannot be inspected.
    ///
    /// # Errors
    /// The manager has no descriptors or memory left, so the list would be incomplete.
    fn candidates(&mut self, pods: &HashSet<String>) -> io::Result<Vec<Candidate>>;

    /// Finds all channel groups that a process has on this GPU now.
    fn inspect(&mut self, candidate: &Candidate) -> Inspection;

    /// Continues the search for clients that no inspection has found, within its own query budget. Returns the processes with newly found
    /// clients.
    fn continue_search(&mut self, candidates: &[Candidate]) -> HashSet<ProcessKey>;

    /// Whether a process owns the clients that it has announced.
    ///
    /// # Errors
    /// Why it cannot be decided.
    fn owns(&mut self, claim: &OwnershipCheck) -> Result<bool, Obstacle>;
}

/// A process of a pod that has the driver open.
#[derive(Debug)]
pub struct Candidate {
    /// Its id and start time.
    pub key: ProcessKey,
    /// Its command name; used only in messages.
    pub command: String,
    /// Its pod, read after the pidfd was opened.
    pub pod: PodCgroup,
    /// Readable when the process ends.
    pub pidfd: OwnedFd,
    /// The numbers of its descriptors that may lead to the driver. A change causes an inspection.
    pub descriptors: Vec<RawFd>,
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

/// The kind of reason why the groups of a process are not controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObstacleKind {
    /// Its descriptors cannot be copied: CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH is missing.
    NotPermitted,
    /// It has the driver open, and no channel group was found. It may not compute at all.
    NoGroups,
    /// It has more descriptors or groups than any program needs, or new ones too often.
    TooMany,
    /// The driver returned an unexpected answer.
    Driver,
    /// A control of its client has failed.
    ControlFailed,
}

impl ObstacleKind {
    /// All labels, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 5] =
        ["not_permitted", "no_groups", "too_many", "driver", "control_failed"];

    /// Index in [`Self::LABELS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the driver's lock can stop the process instead: it has groups, and the manager has access to it.
    pub(crate) const fn can_be_locked(self) -> bool {
        matches!(self, Self::TooMany | Self::Driver)
    }

    /// An obstacle of this kind with a text.
    pub(crate) fn because(self, text: impl Into<String>) -> Obstacle {
        Obstacle { kind: self, text: text.into() }
    }

    /// The label in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// Why the groups of a process are not controlled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Obstacle {
    /// The kind of reason.
    pub kind: ObstacleKind,
    /// The reason in words.
    pub text: String,
}
