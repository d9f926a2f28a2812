//! What a process announces, as it comes in: the contexts that it has, and the descriptors that lead to them.

use crate::closer::Closer;
use crate::reason::Reason;
use sluice_comm::attach::{AttachPayload, ContextHandles, MAX_LEN};
use sluice_comm::page::{OLDEST_PAGE_VERSION, PAGE_VERSION};
use sluice_sys::memfd;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

/// The first version of the payload that comes from a hook with pages of version 2.
const PAYLOAD_OF_PAGES_2: u32 = 2;

/// What came beside an ATTACH or a CONTEXTS. Everything in it is the process's claim.
pub(super) struct Announcement {
    pub(super) claimed_pid: u32,
    /// The pages that its hook understands.
    pub(super) page_version: u32,
    pub(super) contexts: Vec<ContextHandles>,
    pub(super) descriptors: Vec<OwnedFd>,
    closer: Closer,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if !self.descriptors.is_empty() {
            self.closer.close(std::mem::take(&mut self.descriptors));
        }
    }
}

/// An announcement that has to wait.
pub(super) struct PutOff {
    pub(super) announcement: Announcement,
    pub(super) until: Until,
}

/// What an announcement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// This time: then it may be made.
    Time(u64),
    /// An answer to the claim of this number.
    Proven(u64),
}

impl PutOff {
    /// When it may be made, if that is all that it waits for.
    pub(super) fn at(&self) -> Option<u64> {
        match self.until {
            Until::Time(at) => Some(at),
            Until::Proven(_) => None,
        }
    }
}

impl Announcement {
    /// Of no groups.
    pub(super) fn nothing(closer: &Closer) -> Self {
        let (contexts, descriptors, closer) = (Vec::new(), Vec::new(), closer.clone());
        Self { claimed_pid: 0, page_version: PAGE_VERSION, contexts, descriptors, closer }
    }

    /// What was announced is not taken: its descriptors are closed.
    pub(super) fn without_contexts(self) -> Self {
        Self::nothing(&self.closer)
    }

    /// Reads it; what is not taken stays among the descriptors.
    pub(super) fn read(fds: &mut Vec<OwnedFd>, closer: &Closer) -> Result<Self, Reason> {
        let bad = |error: &dyn std::fmt::Display| Reason::BadPayload(error.to_string());
        let fd = fds.first().ok_or_else(|| bad(&"no descriptor beside it"))?;
        let bytes = memfd::read_sealed(fd.as_fd(), MAX_LEN).map_err(|error| bad(&error))?;
        let payload = AttachPayload::decode(&bytes).map_err(|error| bad(&error))?;
        let (found, expected) = (fds.len(), 1 + payload.descriptors());
        if found != expected {
            return Err(bad(&format!("{found} descriptors, expected {expected}")));
        }
        check(&payload.contexts).map_err(|error| bad(&error))?;
        let version = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let page_version = if version < PAYLOAD_OF_PAGES_2 { OLDEST_PAGE_VERSION } else { PAGE_VERSION };
        Ok(Self {
            claimed_pid: payload.pid,
            page_version,
            contexts: payload.contexts,
            descriptors: fds.split_off(1),
            closer: closer.clone(),
        })
    }
}

/// The driver's client and the group there.
pub(super) fn handles_of(context: &ContextHandles) -> (u32, u32) {
    (context.client, context.channel_group)
}

/// What no hook says of its contexts: a descriptor that none of them is on, or a group twice.
fn check(contexts: &[ContextHandles]) -> Result<(), String> {
    let on: BTreeSet<u32> = contexts.iter().map(|context| context.descriptor).collect();
    if let Some(unused) = (0..).zip(&on).find(|(expected, found)| expected != *found) {
        return Err(format!("no context is on control descriptor {}", unused.0));
    }
    let mut seen = BTreeSet::new();
    match contexts.iter().map(handles_of).find(|handles| !seen.insert(*handles)) {
        Some((client, group)) => {
            Err(format!("channel group {group:#x} of client {client:#x} is there twice"))
        }
        None => Ok(()),
    }
}
