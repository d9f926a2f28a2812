//! Connections to a manager: its address, the token connection and the memory connection.

mod announce;
mod manager_clock;
mod memory;
mod presence;
mod socket;
mod token;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) use memory::MemoryConnection;
use presence::AnswerLimit;
pub(crate) use presence::{has_ended_within, presence_left_ns};
pub(crate) use token::TokenConnection;

use sluice_comm::attach::{AttachPayload, ContextHandles};
use sluice_comm::{HOOK_TIMEOUT, Name};

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

/// The payload of an ATTACH: its bytes, the descriptors that its contexts name, and when a manager that can read it answers.
#[derive(Debug)]
struct Payload {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    answer_limit: AnswerLimit,
}

/// The answer to a payload of an earlier version comes when the pod is known.
const LATE_ANSWER: AnswerLimit = AnswerLimit::within(HOOK_TIMEOUT);

impl ClientIdentity {
    /// The identity without contexts, which every manager understands.
    fn plain(&self) -> Payload {
        let bytes = self.payload(Vec::new()).encode_first();
        Payload { bytes, fds: Vec::new(), answer_limit: LATE_ANSWER }
    }

    /// The identity with the contexts that the manager may control, for a manager that writes a heartbeat.
    fn with_heartbeat(&self, announced: Announcement) -> Payload {
        let bytes = self.payload(announced.state.contexts).encode();
        Payload { bytes, fds: announced.fds, answer_limit: AnswerLimit::AT_ONCE }
    }

    /// The identity with the contexts that the manager may control, also for a manager that writes no heartbeat.
    fn with_contexts(&self, announced: Announcement) -> Payload {
        let bytes = self.payload(announced.state.contexts).encode_second();
        Payload { bytes, fds: announced.fds, answer_limit: LATE_ANSWER }
    }

    fn payload(&self, contexts: Vec<ContextHandles>) -> AttachPayload {
        let (device_ordinal, device_uuid) = (self.ordinal, self.uuid);
        AttachPayload { pid: std::process::id(), device_ordinal, device_uuid, contexts }
    }
}
