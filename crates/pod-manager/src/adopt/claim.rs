//! What a process with the hook says is its own, to be looked at from outside: whoever announces somebody else's groups would free them
//! from their turns.

use super::{Obstacle, ProcessKey};
use crate::closer::Closer;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Clients of the driver that a process has announced as its own.
#[derive(Debug)]
pub struct Claim {
    /// Which process that is.
    pub key: ProcessKey,
    /// Its pod's uid.
    pub pod: String,
    /// Readable when it ends.
    pub pidfd: OwnedFd,
    /// The descriptors that it has sent, and the clients that are to be controlled over each.
    pub ways: Vec<(OwnedFd, Vec<u32>)>,
    closer: Closer,
}

impl Claim {
    /// Of what is in an announcement.
    ///
    /// # Errors
    /// No descriptors are left, or a context is on none that was sent.
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
        let mut claim = Self { key, pod, pidfd, ways: Vec::new(), closer: closer.clone() };
        for (number, clients) in clients {
            let sent = descriptors.get(number as usize).ok_or(io::ErrorKind::NotFound)?;
            claim.ways.push((sent.as_fd().try_clone_to_owned()?, clients.into_iter().collect()));
        }
        Ok(claim)
    }
}

impl Drop for Claim {
    /// Whoever sent them can make closing wait.
    fn drop(&mut self) {
        self.closer.close(std::mem::take(&mut self.ways));
    }
}

/// What has become of a claim.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) process: ProcessId,
    /// The number of the announcement.
    pub(crate) serial: u64,
    /// Whether it is true; an error says why that cannot be told.
    pub(crate) holds: Result<bool, Obstacle>,
}
