//! Connections to a manager: where it is, and the two ways to talk to it.

mod memory;
mod socket;
mod token;

use std::path::PathBuf;

pub(crate) use memory::MemoryConnection;
pub(crate) use token::TokenConnection;

use sluice_comm::Name;
use sluice_comm::attach::AttachPayload;

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
pub(crate) struct Identity {
    pub(crate) name: Name,
    pub(crate) ordinal: u32,
    pub(crate) uuid: [u8; 16],
}

impl Identity {
    fn payload(&self) -> AttachPayload {
        AttachPayload {
            pid: std::process::id(),
            device_ordinal: self.ordinal,
            device_uuid: self.uuid,
            contexts: Vec::new(),
        }
    }
}
