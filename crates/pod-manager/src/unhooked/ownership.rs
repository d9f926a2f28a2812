//! The ownership check: where processes without the hook are searched for, an announced group has to belong to the process that
//! announces it. Handles can be guessed: a process that announced another program's groups would take them out of that program's
//! scheduling.

use super::Unhooked;
use super::scanning::{Obstacle, ProcessKey};
use crate::channel_groups::{Announcement, ChannelGroups};
use crate::io::Closer;
use crate::shared::Shared;
use sluice_core::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

/// The clients of the driver that a process has announced as its own.
#[derive(Debug)]
pub struct OwnershipCheck {
    /// The process.
    pub key: ProcessKey,
    /// The UID of its pod.
    pub pod: String,
    /// Readable when the process ends.
    pub pidfd: OwnedFd,
    /// The descriptors that it has sent, each with the clients that are to be controlled through it.
    pub descriptors: Vec<(OwnedFd, Vec<u32>)>,
    pub(super) closer: Closer,
}

impl Drop for OwnershipCheck {
    /// Closes the descriptors on the closer's thread, because their sender can delay the close.
    fn drop(&mut self) {
        self.closer.close(std::mem::take(&mut self.descriptors));
    }
}

/// The result of an ownership check.
#[derive(Debug)]
pub(crate) struct OwnershipProof {
    pub(crate) process: ProcessId,
    /// The number of the announcement.
    pub(crate) serial: u64,
    /// Whether the process owns the groups; an error if it cannot be decided.
    pub(crate) owns: Result<bool, Obstacle>,
}

/// Why an ownership check was not requested.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotChecked {
    /// The announcement is incomplete, or its process is not visible.
    #[error("{0}")]
    Announcement(&'static str),
    /// The manager cannot copy a descriptor.
    #[error("a descriptor of the announcement cannot be copied: {0}")]
    Manager(io::Error),
}

impl Unhooked {
    /// Whether an announcement is checked from outside before it counts. Groups that the process has already were checked before.
    pub(crate) fn must_prove(
        &self,
        id: ProcessId,
        announcement: &Announcement,
        groups: &ChannelGroups,
        shared: &Shared,
    ) -> bool {
        let is_new = |context| groups.unchanged(id, context).is_none();
        self.search.is_some() && pod_of(id, shared).is_some() && announcement.contexts.iter().any(is_new)
    }

    /// Requests the check of an announcement. Returns its number.
    pub(crate) fn request_proof(
        &mut self,
        id: ProcessId,
        announcement: &Announcement,
        shared: &Shared,
    ) -> Result<u64, NotChecked> {
        let missing = NotChecked::Announcement;
        let process = shared.processes.get(id).ok_or(missing("there is no such process"))?;
        let visible = process.key.zip(process.pidfd.as_ref());
        let (key, pidfd) = visible.ok_or(missing("the process is not visible from here"))?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(NotChecked::Manager);
        let (pod, closer) = (pod_of(id, shared).unwrap_or_default().to_owned(), shared.io.closer.clone());
        let mut check = OwnershipCheck { key, pod, pidfd: copy(pidfd)?, descriptors: Vec::new(), closer };
        let mut clients: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for context in &announcement.contexts {
            clients.entry(context.descriptor).or_default().insert(context.client);
        }
        for (index, clients) in clients {
            let sent = announcement.descriptors.get(index as usize);
            let sent = copy(sent.ok_or(missing("a context is on a descriptor that was not sent"))?)?;
            check.descriptors.push((sent, clients.into_iter().collect()));
        }
        self.checks += 1;
        if let Some(search) = &self.search {
            search.check_ownership(id, self.checks, check, shared.io.now());
        }
        Ok(self.checks)
    }
}

/// The uid of the pod that a process is in.
fn pod_of(id: ProcessId, shared: &Shared) -> Option<&str> {
    shared.clients.get(shared.processes.client_of(id)?)?.definition.key.pod_uid()
}
