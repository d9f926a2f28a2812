//! What comes with an ATTACH or a CONTEXTS: the groups of a process, and the descriptors through which they are controlled.

use crate::closer::Closer;
use sluice_comm::attach::{AttachPayload, ContextHandles, MAX_LEN};
use sluice_comm::page::{OLDEST_PAGE_VERSION, PAGE_VERSION};
use sluice_core::processes::{Announcement, handles_of};
use sluice_sys::payload;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The descriptors of an announcement. Copies of the announcement share them; the last one has them closed on the closing thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptors(Option<Arc<Files>>);

#[derive(Debug)]
struct Files {
    descriptors: Vec<OwnedFd>,
    closer: Closer,
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.descriptors.is_empty() {
            self.closer.close(std::mem::take(&mut self.descriptors));
        }
    }
}

impl Descriptors {
    pub(crate) fn new(descriptors: Vec<OwnedFd>, closer: &Closer) -> Self {
        Self(Some(Arc::new(Files { descriptors, closer: closer.clone() })))
    }

    /// A descriptor, by the index that groups name.
    pub(crate) fn get(&self, index: u32) -> Option<&OwnedFd> {
        self.0.as_ref()?.descriptors.get(usize::try_from(index).ok()?)
    }

    /// The descriptors themselves, or copies of them while other copies of the announcement exist.
    /// Errors: the manager has no descriptor left.
    pub(crate) fn take(self) -> io::Result<Vec<OwnedFd>> {
        let Some(files) = self.0 else { return Ok(Vec::new()) };
        match Arc::try_unwrap(files) {
            Ok(mut files) => Ok(std::mem::take(&mut files.descriptors)),
            Err(shared) => shared.descriptors.iter().map(OwnedFd::try_clone).collect(),
        }
    }
}

/// The payload of an ATTACH or a CONTEXTS.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) claimed_pid: u32,
    /// The version of the pages that the hook understands.
    pub(crate) page_version: u32,
    pub(crate) announcement: Announcement<Descriptors>,
}

impl Payload {
    /// Decodes it. Descriptors that it does not take stay in `fds`.
    /// Errors: what is wrong with it.
    pub(crate) fn read(fds: &mut Vec<OwnedFd>, closer: &Closer) -> Result<Self, String> {
        let fd = fds.first().ok_or("no descriptor beside it")?;
        let bytes = payload::read(fd.as_fd(), MAX_LEN).map_err(|error| error.to_string())?;
        let payload = AttachPayload::decode(&bytes).map_err(|error| error.to_string())?;
        let (found, expected) = (fds.len(), 1 + payload.descriptors());
        if found != expected {
            return Err(format!("{found} descriptors, expected {expected}"));
        }
        check(&payload.contexts)?;
        let version = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        // A hook announces the pages that it understands by the version of its payload.
        let page_version = version.clamp(OLDEST_PAGE_VERSION, PAGE_VERSION);
        let descriptors = Descriptors::new(fds.split_off(1), closer);
        let announcement = Announcement { contexts: payload.contexts, descriptors };
        Ok(Self { claimed_pid: payload.pid, page_version, announcement })
    }
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
