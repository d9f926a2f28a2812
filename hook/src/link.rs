//! Connections to a manager: where it is, and the two ways to talk to it.

mod announce;
mod memory;
mod socket;
mod token;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) use memory::MemoryConnection;
pub(crate) use token::TokenConnection;

use sluice_comm::Name;
use sluice_comm::attach::{AttachPayload, ContextHandles};

use crate::groups::Announcement;

/// Where a manager listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// One of ours, on a unix socket.
    Unix(PathBuf),
    /// One that speaks Gemini's protocol.
    Tcp(String, u16),
}

/// Who we say we are, on one device.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    pub(crate) name: Name,
    pub(crate) ordinal: u32,
    pub(crate) uuid: [u8; 16],
}

/// What travels beside an ATTACH: the bytes of the payload, and the descriptors that its contexts name.
#[derive(Debug)]
struct Payload {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl ClientIdentity {
    /// Who we are, and nothing of contexts: understood by every manager.
    fn plain(&self) -> Payload {
        Payload { bytes: self.payload(Vec::new()).encode_first(), fds: Vec::new() }
    }

    /// Who we are, with the contexts that may be controlled.
    fn with_contexts(&self, announced: Announcement) -> Payload {
        Payload { bytes: self.payload(announced.contexts).encode(), fds: announced.fds }
    }

    fn payload(&self, contexts: Vec<ContextHandles>) -> AttachPayload {
        AttachPayload {
            pid: std::process::id(),
            device_ordinal: self.ordinal,
            device_uuid: self.uuid,
            contexts,
        }
    }
}
