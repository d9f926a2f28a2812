//! Violations: what processes of a client were found to do against its limits. Each is counted by kind, logged, and kept for the node
//! agent, which writes an Event on the pod. What else follows is decided in [`consequences`].

mod consequences;
mod policy;
mod stopped_threads;

pub(crate) use consequences::Consequences;
pub use policy::ViolationPolicy;

use crate::party::Party;
use crate::shared::Shared;
use policy::Consequence;
use sluice_core::ClientId;
use sluice_proto::control::{Violation, ViolationsResponse};
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;
use tracing::warn;

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ViolationKind {
    /// An attached process has channel groups that it has not announced: a second driver library, or an attach without the hook. Its groups
    /// are scheduled from outside from then on.
    UnannouncedGroups,
    /// A process has more descriptors than any program needs, so its groups cannot be found.
    TooManyDescriptors,
    /// A channel group ran while the manager had disabled it: the process has enabled it by a control of its own.
    StoppedGroupRan,
    /// A channel group has another time slice than the manager has set.
    TimeSlice,
    /// The page that an attached process maps as its grant page is not the one that the manager has sent.
    GrantPage,
    /// The client's processes have more memory on the GPU than its limit: charges that were released falsely, memory of processes without
    /// the hook, large global variables, or contexts that began near the limit.
    MemoryLimit,
}

impl ViolationKind {
    /// All labels, in the order of [`Self::index`].
    pub(crate) const LABELS: [&'static str; 6] = [
        "unannounced_groups",
        "too_many_descriptors",
        "stopped_group_ran",
        "time_slice",
        "grant_page",
        "memory_limit",
    ];

    /// Index in [`Self::LABELS`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The label in logs, metrics and Events.
    pub(crate) const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

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

impl Shared {
    /// Records a violation by a process of this client that has no further consequence.
    pub(crate) fn record_violation(
        &mut self,
        client: ClientId,
        pid: Option<i32>,
        kind: ViolationKind,
        what: &str,
    ) {
        self.record(client, pid, (kind, what), Consequence::Report);
    }

    fn record(
        &mut self,
        client: ClientId,
        pid: Option<i32>,
        (kind, what): (ViolationKind, &str),
        consequence: Consequence,
    ) {
        let Some(of) = self.clients.get_mut(client) else { return };
        of.metrics.violations[kind.index()].inc();
        let (name, pod_uid) = (of.name.clone(), of.definition.key.pod_uid().unwrap_or_default().to_owned());
        let (now, reason) = (self.io.now(), kind.label());
        if let Some(dropped) = self.io.may_log("violation", Party::Client(client)) {
            warn!(client = name, pid, reason, dropped, "violation: {what}");
        }
        if self.violations.is_due((client, kind, consequence), now) {
            let (kind, pid) = (reason.to_owned(), pid.unwrap_or(0));
            let evict = consequence == Consequence::Evict;
            self.violations.add(Violation { pod_uid, kind, pid, note: what.to_owned(), evict });
        }
    }
}

#[cfg(test)]
mod tests;
