//! What this process reports of itself when it attaches.

use std::os::fd::OwnedFd;

use sluice_comm::attach::{AttachPayload, ContextHandles};
use sluice_comm::{HOOK_TIMEOUT, Name};

use super::answer_limit::AnswerLimit;
use crate::channel_groups::Announcement;

/// The identity that this process reports, on one device.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    pub(crate) name: Name,
    pub(crate) ordinal: u32,
    pub(crate) uuid: [u8; 16],
}

/// The payload of an ATTACH: its bytes, the descriptors that its contexts name, and when a manager that can read it answers.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) answer_limit: AnswerLimit,
}

/// The answer to a payload of an earlier version comes when the pod is known.
const LATE_ANSWER: AnswerLimit = AnswerLimit::within(HOOK_TIMEOUT);

impl ClientIdentity {
    /// The identity without contexts, which every manager understands.
    pub(super) fn plain(&self) -> Payload {
        let bytes = self.payload(Vec::new()).encode_first();
        Payload { bytes, fds: Vec::new(), answer_limit: LATE_ANSWER }
    }

    /// The identity with the contexts that the manager may control, for a manager that writes a heartbeat.
    pub(super) fn with_heartbeat(&self, announced: Announcement) -> Payload {
        let bytes = self.payload(announced.state.contexts).encode();
        Payload { bytes, fds: announced.fds, answer_limit: AnswerLimit::AT_ONCE }
    }

    /// The identity with the contexts that the manager may control, also for a manager that writes no heartbeat.
    pub(super) fn with_contexts(&self, announced: Announcement) -> Payload {
        let bytes = self.payload(announced.state.contexts).encode_second();
        Payload { bytes, fds: announced.fds, answer_limit: LATE_ANSWER }
    }

    fn payload(&self, contexts: Vec<ContextHandles>) -> AttachPayload {
        let (device_ordinal, device_uuid) = (self.ordinal, self.uuid);
        AttachPayload { pid: std::process::id(), device_ordinal, device_uuid, contexts }
    }
}
