//! Ownership checks that were requested and not made yet.
//!
//! The process of a check decides how many descriptors are listed and compared for it. So a check costs its pod queries, as an inspection
//! does, and one round makes at most one check of each pod: a pod with many expensive checks delays only its own.

use super::OwnershipCheck;
use sluice_core::ProcessId;
use std::collections::HashSet;
use std::os::fd::AsFd;

/// The check of an announcement.
#[derive(Debug)]
pub(super) struct RequestedCheck {
    pub(super) process: ProcessId,
    /// The number of the announcement.
    pub(super) serial: u64,
    pub(super) check: OwnershipCheck,
}

/// The checks that wait, in the order of their requests.
#[derive(Debug, Default)]
pub(super) struct OwnershipQueue(Vec<RequestedCheck>);

impl OwnershipQueue {
    /// Adds a check. The process's earlier announcement does not count any more.
    pub(super) fn add(&mut self, requested: RequestedCheck) {
        self.0.retain(|waiting| waiting.process != requested.process);
        self.0.push(requested);
    }

    /// Takes the check that has waited longest of each pod for which work may be done. Those of ended processes are dropped.
    pub(super) fn take_round(&mut self, mut may_check: impl FnMut(&str) -> bool) -> Vec<RequestedCheck> {
        self.0.retain(|waiting| !sluice_sys::pidfd::has_ended(waiting.check.pidfd.as_fd()));
        let mut pods = HashSet::new();
        let is_next = |waiting: &mut RequestedCheck| {
            may_check(&waiting.check.pod) && pods.insert(waiting.check.pod.clone())
        };
        self.0.extract_if(.., is_next).collect()
    }
}
