//! What a process announces: its contexts, and the descriptors through which they are controlled.

use crate::connections::Reason;
use crate::io::Closer;
use sluice_comm::attach::{AttachPayload, ContextHandles, MAX_LEN};
use sluice_comm::page::{OLDEST_PAGE_VERSION, PAGE_VERSION};
use sluice_sys::payload;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What came with an ATTACH or a CONTEXTS. Only the process vouches for it.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) claimed_pid: u32,
    /// The version of the pages that its hook understands.
    pub(crate) page_version: u32,
    pub(crate) contexts: Vec<ContextHandles>,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Its descriptors are closed there.
    pub(crate) closer: Closer,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if !self.descriptors.is_empty() {
            self.closer.close(std::mem::take(&mut self.descriptors));
        }
    }
}

/// What a postponed announcement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostponedUntil {
    /// This time.
    Time(u64),
    /// The result of the ownership check with this number.
    Proven(u64),
}

impl Announcement {
    /// The same announcement, with copies of its descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            claimed_pid: self.claimed_pid,
            page_version: self.page_version,
            contexts: self.contexts.clone(),
            descriptors: self.descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?,
            closer: self.closer.clone(),
        })
    }

    /// Decodes it. Descriptors that it does not take stay in `fds`.
    pub(crate) fn read(fds: &mut Vec<OwnedFd>, closer: &Closer) -> Result<Self, Reason> {
        let bad = |error: &dyn std::fmt::Display| Reason::BadPayload(error.to_string());
        let fd = fds.first().ok_or_else(|| bad(&"no descriptor beside it"))?;
        let bytes = payload::read(fd.as_fd(), MAX_LEN).map_err(|error| bad(&error))?;
        let payload = AttachPayload::decode(&bytes).map_err(|error| bad(&error))?;
        let (found, expected) = (fds.len(), 1 + payload.descriptors());
        if found != expected {
            return Err(bad(&format!("{found} descriptors, expected {expected}")));
        }
        check(&payload.contexts).map_err(|error| bad(&error))?;
        let version = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        // A hook announces the pages that it understands by the version of its payload.
        let page_version = version.clamp(OLDEST_PAGE_VERSION, PAGE_VERSION);
        Ok(Self {
            claimed_pid: payload.pid,
            page_version,
            contexts: payload.contexts,
            descriptors: fds.split_off(1),
            closer: closer.clone(),
        })
    }
}

/// The driver's client and the group's handle there.
pub(crate) fn handles_of(context: &ContextHandles) -> (u32, u32) {
    (context.client, context.channel_group)
}

/// Whether controls of a group as it is announced concern the whole group as it was found. The driver refuses controls of channels that the
/// group does not have.
pub(crate) fn covers(announced: &ContextHandles, found: &ContextHandles) -> bool {
    handles_of(announced) == handles_of(found)
        && announced.subdevice == found.subdevice
        && found.channels.iter().all(|channel| announced.channels.contains(channel))
}

/// Refuses what no hook announces: a descriptor without a context, or a group twice.
fn check(contexts: &[ContextHandles]) -> Result<(), String> {
    let used: BTreeSet<u32> = contexts.iter().map(|context| context.descriptor).collect();
    if let Some(unused) = (0..).zip(&used).find(|(expected, found)| expected != *found) {
        return Err(format!("no context is on control descriptor {}", unused.0));
    }
    let mut seen = BTreeSet::new();
    let twice = contexts.iter().map(handles_of).find(|handles| !seen.insert(*handles));
    twice.map_or(Ok(()), |(client, group)| {
        Err(format!("channel group {group:#x} of client {client:#x} is there twice"))
    })
}
