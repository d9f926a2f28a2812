//! Gates on the data plane: what latency-critical processes say of themselves goes in, words on pages come out.

use super::DataPlane;
use super::steering::activity_of;
use crate::client_table::ClientTable;
use crate::config::GatesOf;
use crate::process::Process;
use sluice_comm::page::PAGE_VERSION;
use sluice_core::ProcessId;
use sluice_core::gates::{GatePolicy, Gates, Gating, LATE_NS};
use sluice_core::ledger::Class;
use sluice_core::steering::Activity;
use tracing::warn;

/// Whose gates there are, and how they are.
pub(super) struct Gatekeeper {
    gates: Gates,
    of: GatesOf,
    drain_ns: u64,
    /// When the last two rounds of the loop began.
    rounds: (u64, u64),
}

impl Gatekeeper {
    pub(super) fn new(policy: GatePolicy, of: GatesOf) -> Self {
        Self { gates: Gates::new(policy), of, drain_ns: policy.drain_ns, rounds: (0, 0) }
    }

    /// A round of the loop begins: what is sent from here on is read in the next one.
    pub(super) fn begin_round(&mut self, now: u64) {
        self.rounds = (self.rounds.1, now);
    }

    /// When to look again.
    pub(super) fn wake_at(&self) -> Option<u64> {
        self.gates.wake_at()
    }

    /// Whether a best-effort process is to hold back what it has submitted. One whose slices are set from here gives way without.
    fn concerns(&self, process: &Process) -> bool {
        match self.of {
            GatesOf::Off => false,
            GatesOf::Unsteered => !process.steered,
            GatesOf::All => true,
        }
    }
}

impl DataPlane {
    /// Opens and closes the gates, and withholds grants while they are closed. Before the ledger decides.
    pub(super) fn tend_gates(&mut self) {
        let before = self.gatekeeper.gates.state();
        if !before.is_wanted() && !self.helm.steering.has_critical() {
            return;
        }
        let now = self.clock.now_ns();
        let mut critical: Vec<Activity> = Vec::new();
        let (mut concerned, mut awaited) = (false, None);
        for process in self.processes.values_mut().filter(|process| process.token.is_some()) {
            if !is_critical(&self.clients, process) {
                concerned |= self.gatekeeper.concerns(process);
            } else if says_what_it_does(process) {
                read_announcement(process, now);
                let activity = activity_of(process);
                awaited = awaited.max(process.foresight.look(now, activity));
                critical.push(activity);
            }
        }
        if !concerned {
            critical.clear();
        }
        self.gatekeeper.gates.set_awaited(awaited);
        let state = self.gatekeeper.gates.look(now, critical.into_iter());
        if state != before {
            self.meters.gates.changed(state);
        }
        if !(state.is_wanted() || before.is_wanted()) {
            return;
        }
        self.tokens.set_withheld(state.is_closed(), now);
        self.watch_gates(state, now);
        for (id, process) in &self.processes {
            let its = self.has_gates(process);
            if let Some(pages) = process.pages.as_ref().filter(|pages| pages.version == PAGE_VERSION) {
                pages.set_gate(its && state.is_wanted(), its && state.is_closed());
                let keeps = its && !process.ignores_gates;
                self.tokens.set_gated(*id, keeps && pages.report().gates() != 0);
            }
        }
    }

    /// Looks whether those who say that they have gates keep them. Who does not is charged like somebody without. The gates of who has none
    /// count as open: what is seen of it when it has some again is seen of that time only.
    fn watch_gates(&mut self, state: Gating, now: u64) {
        let closed = |process: &Process| state.is_closed() && self.has_gates(process);
        let all: Vec<_> = self.processes.iter().map(|(id, process)| (*id, closed(process))).collect();
        for (id, closed) in all {
            let Some(process) = self.processes.get_mut(&id).filter(|process| !process.ignores_gates) else {
                continue;
            };
            let Some(report) = process.pages.as_ref().map(|pages| pages.report()) else {
                continue;
            };
            let (busy_ns, streams) = (report.busy_ns(), report.gated_streams());
            if process.witness.look(closed, busy_ns, streams, now, self.gatekeeper.drain_ns) {
                process.ignores_gates = true;
                self.tokens.set_ungated(id);
                let client = self.clients.name(process.client);
                warn!(client, peer = %process.label, "goes on while its gates are closed: it is charged as if it had none");
            }
        }
    }

    /// Whether a process is told to hold back what it has submitted.
    fn has_gates(&self, process: &Process) -> bool {
        process.token.is_some() && !self.is_critical(process) && self.gatekeeper.concerns(process)
    }

    /// Whether a process is to ring when it becomes busy, for the gates of others depend on it.
    pub(super) fn holds_the_gates(&self, id: ProcessId) -> bool {
        let critical = |process: &Process| process.token.is_some() && self.is_critical(process);
        self.gatekeeper.gates.state() == Gating::Open && self.processes.get(&id).is_some_and(critical)
    }

    /// A process says that work of its own comes in `lead_us`: the gates are closed ahead of it, as far as it is believed.
    pub(super) fn announced_work(&mut self, id: ProcessId, lead_us: u32) {
        let now = self.clock.now_ns();
        let Some(process) = self.processes.get_mut(&id) else { return };
        if !is_critical(&self.clients, process) || !says_what_it_does(process) {
            return;
        }
        // A frame does not say when it was sent; what is read in this round came after the last one had begun.
        foresee(process, now, self.gatekeeper.rounds.0, u64::from(lead_us) * 1_000);
    }

    /// Whether a process's client is latency-critical.
    pub(super) fn is_critical(&self, process: &Process) -> bool {
        is_critical(&self.clients, process)
    }
}

/// Takes note of what the page announces, once.
fn read_announcement(process: &mut Process, now: u64) {
    let Some(pages) = &process.pages else { return };
    let announced_ns = pages.report().announced_ns();
    let is_new = announced_ns != std::mem::replace(&mut process.announced_ns, announced_ns);
    // It may say when it wrote that. It did not before it was read last.
    let said = pages.report().announced_at_ns().max(std::mem::replace(&mut process.announced_read, now));
    // It is read somewhat later than it was written, and the work may be as late as that itself.
    if is_new && announced_ns.saturating_add(LATE_NS) > now {
        foresee(process, now, said, announced_ns.saturating_sub(now));
    }
}

/// A process that is latency-critical has said, not before `said`, that work comes.
fn foresee(process: &mut Process, now: u64, said: u64, lead_ns: u64) {
    let activity = activity_of(process);
    process.foresight.announce(now, said, lead_ns, activity);
}

fn is_critical(clients: &ClientTable, process: &Process) -> bool {
    clients.get(process.client).is_some_and(|client| client.definition.spec.class == Class::LatencyCritical)
}

/// Who does not speak of what it does cannot be given way to.
fn says_what_it_does(process: &Process) -> bool {
    process.pages.as_ref().is_some_and(|pages| pages.version == PAGE_VERSION)
}
