//! Violations: what processes of a client were found to do against its limits. Each is counted by kind, logged, and kept for the node
//! agent, which writes an Event on the pod. What else follows is decided in [`sluice_core::processes`].

use crate::clients::Clients;
use crate::io::Io;
use crate::party::Party;
use sluice_core::ClientId;
use sluice_core::processes::{self, Consequence, ViolationKind};
use sluice_proto::control::{Violation, ViolationsResponse};
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;
use tracing::warn;

/// Violations that are kept for an agent that has not asked for them yet.
const KEPT: usize = 256;
/// The agent learns of violations of one client, kind and consequence at most this often; the counter has all of them.
const REPORTED_EVERY_NS: u64 = 10_000_000_000;

/// What is reported at most once in [`REPORTED_EVERY_NS`].
type Topic = (ClientId, ViolationKind, Consequence);

/// The violations that the node agent may ask for, and its questions that wait for the next one.
#[derive(Default)]
pub(crate) struct Violations {
    /// Each with its number, oldest first.
    kept: VecDeque<(u64, Violation)>,
    last: u64,
    /// When violations of each topic were last reported, if that is not long ago.
    reported: HashMap<Topic, u64>,
    waiting: Vec<(u64, oneshot::Sender<ViolationsResponse>)>,
}

impl Violations {
    /// Answers with the violations after number `after`: at once if there are some, else as soon as there is one.
    pub(crate) fn ask(&mut self, after: u64, answer: oneshot::Sender<ViolationsResponse>) {
        self.waiting.retain(|(_, waiting)| !waiting.is_closed());
        // A number that was never given out is that of an earlier manager.
        self.waiting.push((if after > self.last { 0 } else { after }, answer));
        self.answer();
    }

    /// Whether a violation of this topic is to be reported at `now`. It counts as reported then.
    fn is_due(&mut self, topic: Topic, now: u64) -> bool {
        self.reported.retain(|_, at| now.saturating_sub(*at) < REPORTED_EVERY_NS);
        let is_due = !self.reported.contains_key(&topic);
        if is_due {
            self.reported.insert(topic, now);
        }
        is_due
    }

    fn add(&mut self, violation: Violation) {
        self.last += 1;
        self.kept.push_back((self.last, violation));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        self.answer();
    }

    /// Records a violation.
    pub(crate) fn record(&mut self, violation: processes::Violation, clients: &mut Clients, io: &mut Io) {
        let processes::Violation { client, pid, kind, what, consequence } = violation;
        let Some(of) = clients.get_mut(client) else { return };
        of.metrics.violations[kind.index()].inc();
        let (name, pod_uid) = (&of.name, of.definition.key.pod_uid().unwrap_or_default().to_owned());
        if let Some(dropped) = io.may_log("violation", Party::Client(client)) {
            warn!(client = name, pid, reason = kind.label(), dropped, "violation: {what}");
        }
        if self.is_due((client, kind, consequence), io.now()) {
            let (kind, pid) = (kind.label().to_owned(), pid.unwrap_or(0));
            let evict = consequence == Consequence::Evict;
            self.add(Violation { pod_uid, kind, pid, note: what, evict });
        }
    }

    fn answer(&mut self) {
        let last = self.last;
        for (after, answer) in self.waiting.extract_if(.., |(after, _)| *after < last) {
            let newer = self.kept.iter().filter(|(number, _)| *number > after);
            let violations = newer.map(|(_, violation)| violation.clone()).collect();
            // The agent may have stopped waiting.
            let _ = answer.send(ViolationsResponse { last, violations });
        }
    }
}

#[cfg(test)]
mod tests;
