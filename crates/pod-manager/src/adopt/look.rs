//! A look around: who is looked for, and what was found.

use super::{Obstacle, ProcessKey, Way};
use sluice_core::pod_cgroup::PodCgroup;
use std::collections::HashSet;
use std::os::fd::OwnedFd;

/// One look around.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) now: u64,
    /// The clients' pods, by uid.
    pub(crate) pods: HashSet<String>,
    /// Who has attached by himself: never looked into.
    pub(crate) attached: HashSet<ProcessKey>,
    /// Who is to be looked into whether that is due or not.
    pub(crate) again: HashSet<ProcessKey>,
}

/// A process that was looked into, and can be controlled.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) key: ProcessKey,
    pub(crate) command: String,
    pub(crate) pod: PodCgroup,
    pub(crate) pidfd: OwnedFd,
    /// None: it has closed the driver, or computes elsewhere.
    pub(crate) ways: Vec<Way>,
}

/// A process that cannot be controlled.
#[derive(Debug)]
pub(crate) struct Unreached {
    pub(crate) key: ProcessKey,
    pub(crate) command: String,
    pub(crate) pod: PodCgroup,
    pub(crate) pidfd: OwnedFd,
    pub(crate) obstacle: Obstacle,
}

/// What a look has found.
#[derive(Debug, Default)]
pub(crate) struct Sighted {
    /// All that have the driver open, or had, and have not attached. `None`: nobody could be looked for.
    pub(crate) present: Option<HashSet<ProcessKey>>,
    /// Those that were looked into this time.
    pub(crate) reached: Vec<Reached>,
    /// All for which there was something in the way when they were last looked into.
    pub(crate) unreached: Vec<Unreached>,
}
