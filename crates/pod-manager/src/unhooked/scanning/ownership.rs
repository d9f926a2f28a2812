//! The ownership check of announced channel groups. Handles can be guessed: a process that announced another program's groups would take
//! them out of that program's scheduling.

use super::{Obstacle, ProcessKey};
use crate::closer::Closer;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    closer: Closer,
}

impl OwnershipCheck {
    /// The check of an announcement.
    ///
    /// # Errors
    /// The manager has no descriptors left, or a context names a descriptor that was not sent.
    pub(crate) fn new(
        (key, pod, pidfd): (ProcessKey, String, BorrowedFd<'_>),
        contexts: &[ContextHandles],
        descriptors: &[OwnedFd],
        closer: &Closer,
    ) -> io::Result<Self> {
        let mut clients: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for context in contexts {
            clients.entry(context.descriptor).or_default().insert(context.client);
        }
        let pidfd = pidfd.try_clone_to_owned()?;
        let mut claim = Self { key, pod, pidfd, descriptors: Vec::new(), closer: closer.clone() };
        for (index, clients) in clients {
            let sent = descriptors.get(index as usize).ok_or(io::ErrorKind::NotFound)?;
            claim.descriptors.push((sent.as_fd().try_clone_to_owned()?, clients.into_iter().collect()));
        }
        Ok(claim)
    }
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
