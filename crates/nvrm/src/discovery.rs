//! Discovery of the channel groups of unhooked processes: processes without the hook, or that bypass it.
//!
//! The process's descriptors of the control device are copied (`pidfd_getfd`). That needs the right to trace the process, not its
//! cooperation. Through the copies the driver is queried about handles; no query changes anything.
//!
//! 1. [`driver_descriptors`] lists a process's descriptors of the control device.
//! 2. [`ClientSearch`] finds the driver's clients on one open file by querying their numbers ([`ClientNumbering`]).
//! 3. [`walk_objects`] finds the objects of these clients, and [`ObjectTree`] the channel groups among them.
//! 4. [`GroupDiscovery`] does all of it for processes, scan by scan, and remembers which numbers were queried on which file.
//!    [`DiscoveredProcess`] does it once for one process.
//!
//! [`owns_clients`] is the reverse question: whether clients that a process announces are its own.
//!
//! The cost is bounded in driver queries by `limits`; the pod-manager's module on unhooked processes explains what a scan costs a
//! pod and a node, and what it does not find.
//!
//! A copy keeps the GPU memory of a process that has ended. So the owner of a [`DiscoveredProcess`] or a [`DiscoveredDescriptor`] checks whether the
//! process has ended, and drops the copy. A controller that dies while groups are disabled leaves them disabled; another process
//! must enable them.

mod client_numbering;
mod client_search;
mod continued_search;
mod descriptors;
mod discovered_process;
mod group_discovery;
mod limits;
mod objects;
mod open_files;

use std::io;

use thiserror::Error;

pub use client_numbering::{
    CLIENT_NUMBERS, ClientNumbering, ClientPosition, FIRST_CLIENT, NewestClient, newest_client,
};
pub use client_search::{ClientSearch, QueryBudget};
pub use descriptors::{DescriptorPart, driver_descriptors, driver_descriptors_from, owns_clients};
pub use discovered_process::{DiscoveredDescriptor, DiscoveredProcess};
pub use group_discovery::{GroupDiscovery, ProcessKey, ScannedProcess};
pub use limits::{MAX_DESCRIPTORS, MAX_FILES, OWNERSHIP_QUERIES};
pub use objects::{ObjectQueries, ObjectTree, WalkError, WalkLimits, walk_objects};

/// Why the channel groups of a process cannot be controlled.
#[derive(Debug, Error)]
pub enum DiscoveryError {
    /// There is no such process, or its descriptors cannot be copied.
    #[error("descriptors of process {pid}: {why}")]
    NoAccess {
        /// The process id.
        pid: i32,
        /// The kernel's error. `EPERM`: CAP_SYS_PTRACE is missing.
        #[source]
        why: io::Error,
    },
    /// The process has no descriptor of the control device.
    #[error("process {0} has no descriptor of the NVIDIA control device: it does not use a GPU")]
    NoDriver(i32),
    /// The process has the control device open, and no group with channels on it.
    #[error("process {0} uses the driver, but no channel group of it was found")]
    NoGroups(i32),
    /// The process has the control device open, and not all client numbers were queried.
    #[error("process {0} uses the driver, but the search for its clients is not complete")]
    SearchIncomplete(i32),
    /// The process has more descriptors of the control device than any program needs.
    #[error(
        "process {0} has more than {MAX_FILES} open files of the control device, or {MAX_DESCRIPTORS} descriptors"
    )]
    TooManyFiles(i32),
    /// An ownership check does not reach all descriptors of the process.
    #[error("process {0} has more descriptors than an ownership check compares")]
    TooManyDescriptors(i32),
    /// The driver answers no query, or a group could not be disabled.
    #[error("channel groups of process {pid}: {why}")]
    Groups {
        /// The process id.
        pid: i32,
        /// What is missing.
        why: String,
    },
}
