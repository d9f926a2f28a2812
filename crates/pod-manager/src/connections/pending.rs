//! Pending attaches: connections that wait until their pod is a client, or until their time is up. Such a connection is not read, so it
//! costs one descriptor, and one answer at each heartbeat.

use super::Outcome;
use crate::announcement::Payload;
use crate::reason::Reason;
use sluice_comm::page::FIRST_WITH_HEARTBEAT;
use sluice_comm::{Channel, Name};
use sluice_core::ConnectionId;
use std::collections::BTreeMap;

/// Connections of one pod that may wait at once.
const MAX_OF_POD: usize = 64;

/// An ATTACH whose payload is valid: the client of its process is still to be found.
pub(crate) struct Attach {
    /// The request's id.
    pub(crate) request: i32,
    pub(crate) name: Name,
    pub(crate) channel: Channel,
    pub(crate) used_bytes: u64,
    pub(crate) payload: Payload,
}

struct Pending {
    attach: Attach,
    uid: String,
    until: u64,
}

/// All pending attaches, and the limits of their number and time.
pub(crate) struct PendingAttaches {
    waiting: BTreeMap<ConnectionId, Pending>,
    wait_ns: u64,
    max: usize,
}

impl PendingAttaches {
    /// With a time of zero no attach waits.
    pub(crate) fn new(wait_ns: u64, max: usize) -> Self {
        Self { waiting: BTreeMap::new(), wait_ns, max }
    }

    /// Whether one more attach of this pod may wait.
    pub(super) fn check(&self, uid: &str) -> Outcome {
        if self.wait_ns == 0 {
            return Err(Reason::UnknownPod { uid: uid.to_owned(), waited_ms: 0 });
        }
        let of_pod = self.waiting.values().filter(|pending| pending.uid == uid).count();
        if self.waiting.len() >= self.max || of_pod >= MAX_OF_POD {
            return Err(Reason::TooManyPending(uid.to_owned()));
        }
        Ok(())
    }

    pub(super) fn add(&mut self, id: ConnectionId, attach: Attach, uid: String, now: u64) {
        let until = now.saturating_add(self.wait_ns);
        self.waiting.insert(id, Pending { attach, uid, until });
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.waiting.remove(&id);
    }

    /// When the time of the first one is up.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.waiting.values().map(|pending| pending.until).min()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The attaches whose hooks are to see that the manager runs: the request of each. Earlier hooks do not know the answer.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (ConnectionId, i32)> {
        let reads = |pending: &&Pending| pending.attach.payload.page_version >= FIRST_WITH_HEARTBEAT;
        let waiting = self.waiting.iter();
        waiting.filter(move |(_, pending)| reads(pending)).map(|(id, pending)| (*id, pending.attach.request))
    }

    /// Takes out the attaches whose pods are clients by now.
    pub(crate) fn take_known(&mut self, is_client: impl Fn(&str) -> bool) -> Vec<(ConnectionId, Attach)> {
        let known = self.waiting.extract_if(.., |_, pending| is_client(&pending.uid));
        known.map(|(id, pending)| (id, pending.attach)).collect()
    }

    /// Takes out the attaches whose time is up: the request of each and why it is refused.
    pub(crate) fn take_due(&mut self, now: u64) -> Vec<(ConnectionId, i32, Reason)> {
        let waited_ms = self.wait_ns / 1_000_000;
        let due = self.waiting.extract_if(.., |_, pending| pending.until <= now);
        let refused = due.map(|(id, Pending { attach, uid, .. })| {
            (id, attach.request, Reason::UnknownPod { uid, waited_ms })
        });
        refused.collect()
    }
}

#[cfg(test)]
mod tests;
