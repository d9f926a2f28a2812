//! The channel groups of a process that tells nobody of them: it has no hook, or goes around it.
//!
//! The process's own descriptors of the control device are copied (`pidfd_getfd`: the right to trace the process is needed, its
//! cooperation is not), and the driver is asked through them what its handles are. Nothing that it asks changes anything.
//!
//! A copy keeps the GPU memory of a process that has ended. So whoever keeps a [`Tenant`] or a [`Way`] looks at whether the process has
//! ended and drops it; and a controller that dies while groups stand leaves them so, for another to start.

mod files;
mod known;
mod newest;
mod numbering;
mod onward;
mod owner;
mod search;
mod searcher;
mod tenant;
mod tree;
mod walk;
mod way;

use std::io;

use thiserror::Error;

pub use files::descriptors;
pub use newest::{Newest, newest_client};
pub use numbering::{CLIENTS, NUMBERS, Numbering, Place};
pub use owner::is_its_own;
pub use search::{Questions, Search};
pub use searcher::{Process, ProcessKey, Searcher};
pub use tenant::Tenant;
pub use tree::Tree;
pub use walk::{Ask, Limits, Unwalked, walk};
pub use way::Way;

/// Why a process cannot be controlled from outside.
#[derive(Debug, Error)]
pub enum Unreachable {
    /// There is no such process, or its descriptors cannot be copied.
    #[error("descriptors of process {pid}: {why}")]
    Process {
        /// Its id.
        pid: i32,
        /// What the kernel says. `EPERM`: CAP_SYS_PTRACE is missing.
        #[source]
        why: io::Error,
    },
    /// It has no descriptor of the control device.
    #[error("process {0} has no descriptor of the NVIDIA control device: it does not use a GPU")]
    NoDriver(i32),
    /// It has the control device open, and no group with channels on it.
    #[error("process {0} uses the driver, and no channel group of it is found")]
    NoGroups(i32),
    /// It has the control device open, and its clients are yet to be found.
    #[error("process {0} uses the driver, and not all numbers that its clients may have were asked for yet")]
    NotYet(i32),
    /// It has more descriptors of the control device than any program needs.
    #[error(
        "process {0} has more than {MOST_FILES} open files of the control device, or {MOST_COPIES} descriptors"
    )]
    TooMany(i32),
    /// The driver answers none of the questions, or there are groups that cannot be stopped.
    #[error("channel groups of process {pid}: {why}")]
    Groups {
        /// Its id.
        pid: i32,
        /// What is missing.
        why: String,
    },
}

/// Open files of the control device that a process may have, but for those that lead to groups of other GPUs only: a program has one
/// or two, and each costs thousands of questions.
pub const MOST_FILES: usize = 32;

/// Descriptors of the control device that are copied: several may be one open file.
pub const MOST_COPIES: usize = 256;
