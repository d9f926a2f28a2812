//! The ownership check: where processes are inspected, an announced group has to belong to the process that announces it.

use super::ProcessKey;
use crate::announcement::Descriptors;
use crate::closer::Closer;
use sluice_core::processes::Announcement;
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
    pub(in crate::unhooked) closer: Closer,
}

impl Drop for OwnershipCheck {
    /// Closes the descriptors on the closer's thread, because their sender can delay the close.
    fn drop(&mut self) {
        self.closer.close(std::mem::take(&mut self.descriptors));
    }
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

impl OwnershipCheck {
    /// The check of an announcement by the process of `pidfd`.
    pub(crate) fn of(
        announcement: &Announcement<Descriptors>,
        key: ProcessKey,
        pod: String,
        pidfd: &OwnedFd,
        closer: &Closer,
    ) -> Result<Self, NotChecked> {
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(NotChecked::Manager);
        let closer = closer.clone();
        let mut check = Self { key, pod, pidfd: copy(pidfd)?, descriptors: Vec::new(), closer };
        let mut clients: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for context in &announcement.contexts {
            clients.entry(context.descriptor).or_default().insert(context.client);
        }
        for (index, clients) in clients {
            let missing = NotChecked::Announcement("a context is on a descriptor that was not sent");
            let sent = copy(announcement.descriptors.get(index).ok_or(missing)?)?;
            check.descriptors.push((sent, clients.into_iter().collect()));
        }
        Ok(check)
    }
}
