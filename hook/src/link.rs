//! Connections to a manager: its address, the token connection and the memory connection.

mod announce;
mod memory;
mod presence;
mod socket;
mod token;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) use memory::MemoryConnection;
pub(crate) use presence::{has_ended_within, presence_left_ns};
pub(crate) use token::TokenConnection;

use sluice_comm::Name;
use sluice_comm::attach::{AttachPayload, ContextHandles};

use crate::channel_groups::Announcement;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A pod-manager, on a unix socket.
    Unix(PathBuf),
    /// A manager with Gemini's protocol.
    Tcp(String, u16),
}

/// The identity that this process reports, on one device.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    pub(crate) name: Name,
    pub(crate) ordinal: u32,
    pub(crate) uuid: [u8; 16],
}

/// The payload of an ATTACH: its bytes, and the descriptors that its contexts name.
#[derive(Debug)]
struct Payload {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl ClientIdentity {
    /// The identity without contexts, which every manager understands.
    fn plain(&self) -> Payload {
        Payload { bytes: self.payload(Vec::new()).encode_first(), fds: Vec::new() }
    }

    /// The identity with the contexts that the manager may control, for a manager that writes a heartbeat.
    fn with_heartbeat(&self, announced: Announcement) -> Payload {
        Payload { bytes: self.payload(announced.state.contexts).encode(), fds: announced.fds }
    }

    /// The identity with the contexts that the manager may control, also for a manager that writes no heartbeat.
    fn with_contexts(&self, announced: Announcement) -> Payload {
        Payload { bytes: self.payload(announced.state.contexts).encode_second(), fds: announced.fds }
    }

    fn payload(&self, contexts: Vec<ContextHandles>) -> AttachPayload {
        let (device_ordinal, device_uuid) = (self.ordinal, self.uuid);
        AttachPayload { pid: std::process::id(), device_ordinal, device_uuid, contexts }
    }
}
