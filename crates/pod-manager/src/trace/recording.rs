//! The events since the first reader came, and the state that a further reader has to know.

use super::event::{Decision, Label, TraceEvent};
use super::ring::Ring;
use crate::latencies::NewLatencies;
use sluice_core::channel_groups::{Activity, ChannelGroupScheduler, Control, ControlOp, ControlOutcome};
use sluice_core::gangs::{CYCLE_NS, Slot, Slots};
use sluice_core::ledger::{Action, Deadline, TokenLedger};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// Events in the ring: those of a second, if there are many hand-offs and requests. About 3 MB.
const CAPACITY: usize = 32_768;

/// Events that a reader receives at once. The event loop copies them in less than 0.1 ms.
const BATCH: usize = 1024;

/// Time between two readings of the pages of latency-critical processes.
const SAMPLE_NS: u64 = 1_000_000;

/// Events for one reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TraceBatch {
    pub(crate) events: Vec<TraceEvent>,
    /// From which number on the reader reads next.
    pub(crate) next: u64,
    /// There are further events now.
    pub(crate) has_more: bool,
}

/// A quantum that has not ended.
#[derive(Debug)]
struct Quantum {
    since_ns: u64,
    /// Its process is hardware-scheduled.
    by_groups: bool,
}

/// The recording.
#[derive(Debug)]
pub(crate) struct Recording {
    ring: Ring,
    /// When the pages of latency-critical processes are read next.
    pub(super) next_sample: u64,
    clients: BTreeMap<ClientId, String>,
    processes: BTreeMap<ProcessId, (ClientId, Option<i32>)>,
    quanta: BTreeMap<ProcessId, Quantum>,
    /// When the hardware-scheduled processes were granted last.
    granted: BTreeMap<ProcessId, u64>,
    slots: BTreeMap<ClientId, Slot>,
    /// When the control in flight was requested.
    control_requested_at: u64,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            ring: Ring::new(CAPACITY),
            next_sample: 0,
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            quanta: BTreeMap::new(),
            granted: BTreeMap::new(),
            slots: BTreeMap::new(),
            control_requested_at: 0,
        }
    }
}

impl Recording {
    pub(super) fn push(&mut self, event: TraceEvent) {
        self.ring.push(event);
    }

    /// What a new reader receives first: the state.
    pub(super) fn begin(&self, now: u64) -> TraceBatch {
        let events = [vec![TraceEvent::Time { at_ns: now }], self.state(now)].concat();
        TraceBatch { events, next: self.ring.next(), has_more: false }
    }

    /// What a reader receives that has read up to number `from`. One that is too late skips what is in the ring and receives the state.
    pub(super) fn read(&self, from: u64, now: u64) -> TraceBatch {
        let next = self.ring.next();
        let Some(mut events) = self.ring.read(from, BATCH) else {
            let lost = vec![TraceEvent::Lost { at_ns: now, count: next - from }];
            return TraceBatch { events: [lost, self.state(now)].concat(), next, has_more: false };
        };
        let read_to = from + events.len() as u64;
        if read_to == next {
            events.push(TraceEvent::Time { at_ns: now });
        }
        TraceBatch { events, next: read_to, has_more: read_to < next }
    }

    fn state(&self, now: u64) -> Vec<TraceEvent> {
        let clients = self.clients.iter().map(|(id, name)| client(*id, name.clone()));
        let processes = self.processes.iter().map(|(id, (client, pid))| process(*id, *client, *pid));
        let quanta = self.quanta.iter().map(|(id, quantum)| began(*id, quantum.since_ns));
        let slots = self.slots.iter().map(|(id, slot)| gang_slot(*id, *slot, now));
        clients.chain(processes).chain(quanta).chain(slots).collect()
    }

    /// Whether the pages of latency-critical processes are to be read now; then they are read again a while later.
    pub(crate) fn takes_sample(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_sample;
        if is_due {
            self.next_sample = now.saturating_add(SAMPLE_NS);
        }
        is_due
    }

    /// Names a client, if that was not done.
    pub(crate) fn name_client(&mut self, id: ClientId, name: &str) {
        if let Entry::Vacant(entry) = self.clients.entry(id) {
            entry.insert(name.to_owned());
            self.push(client(id, name.to_owned()));
        }
    }

    /// Names a process, if that was not done.
    pub(crate) fn name_process(&mut self, id: ProcessId, of: ClientId, pid: Option<i32>) {
        if self.processes.insert(id, (of, pid)).is_none() {
            self.push(process(id, of, pid));
        }
    }

    /// Records the begin of a control that is requested now.
    pub(crate) fn control_requested(&mut self, now: u64) {
        self.control_requested_at = now;
    }

    /// Records a control that has ended now. It began no earlier than it was requested.
    pub(crate) fn control_ended(
        &mut self,
        control: Control,
        outcome: ControlOutcome,
        took: Duration,
        client: Option<ClientId>,
        now: u64,
    ) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let begin_ns = now.saturating_sub(took_ns).max(self.control_requested_at).min(now);
        let slice_us = if let ControlOp::SetSlice(us) = control.op { Some(us) } else { None };
        self.push(TraceEvent::Control {
            begin_ns,
            took_ns,
            group: control.group.0,
            client: client.map(|client| client.0),
            control: Label::Borrowed(ControlOp::LABELS[control.op.index()]),
            slice_us,
            outcome: Label::Borrowed(ControlOutcome::LABELS[outcome.index()]),
        });
    }

    /// Records what a latency-critical process has used of the GPU for work since the last reading: `busy_ns`, not before `from`. A burst
    /// that has ended did so when the process became idle, by its report.
    pub(crate) fn worked(
        &mut self,
        id: ProcessId,
        (from, busy_ns): (u64, u64),
        activity: Activity,
        now: u64,
    ) {
        if busy_ns > 0 {
            let end_ns = if activity.busy { now } else { activity.since_ns.min(now) };
            let begin_ns = end_ns.saturating_sub(busy_ns).max(from);
            self.push(TraceEvent::Work { begin_ns, end_ns: begin_ns + busy_ns, process: id.0 });
        }
    }

    /// Records how long hold kernels of a latency-critical process that have ended since the last reading kept the GPU.
    pub(crate) fn held(&mut self, id: ProcessId, hold_ns: u64, now: u64) {
        if hold_ns > 0 {
            self.push(TraceEvent::Hold { at_ns: now, process: id.0, held_ns: hold_ns });
        }
    }

    /// Records requests of a latency-critical process that have ended since the last reading.
    pub(crate) fn requests(&mut self, process: ProcessId, new: Option<&NewLatencies>, now: u64) {
        let Some(new) = new else { return };
        let count = new.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        if count > 0 {
            self.push(TraceEvent::Requests { at_ns: now, process: process.0, count, sum_ns: new.sum_ns });
        }
    }

    /// Records what the ledger decided, before it is carried out.
    pub(crate) fn decisions(
        &mut self,
        actions: &[Action],
        ledger: &TokenLedger,
        scheduler: &ChannelGroupScheduler,
        now: u64,
    ) {
        self.end_returned(ledger, now);
        for action in actions {
            let Some((client, process, decision)) = self.decision(action, ledger, scheduler, now) else {
                continue;
            };
            self.push(TraceEvent::Decision { at_ns: now, client: client.0, process, decision });
            let Action::Grant { process, deadline: Deadline::At(_), .. } = *action else { continue };
            self.end(process, now);
            if scheduler.quantum_state(process).is_some() {
                self.granted.insert(process, now);
            } else {
                self.begin_quantum(process, now, false);
            }
        }
    }

    fn decision(
        &self,
        action: &Action,
        ledger: &TokenLedger,
        scheduler: &ChannelGroupScheduler,
        now: u64,
    ) -> Option<(ClientId, Option<u64>, Decision)> {
        let client_of = |process: ProcessId| self.processes.get(&process).map(|(client, _)| *client);
        Some(match *action {
            Action::Grant { process, client, deadline, waited_ns, .. } => {
                let reason = Label::Borrowed(ledger.grant_reason(process, client, now).into());
                let until_ns = if let Deadline::At(at) = deadline { Some(at) } else { None };
                let by_groups = scheduler.quantum_state(process).is_some();
                let granted = Decision::Granted { reason, waited_ns, until_ns, by_groups };
                (client, Some(process.0), granted)
            }
            Action::Extend { process, deadline, .. } => {
                (client_of(process)?, Some(process.0), Decision::Extended { until_ns: deadline })
            }
            Action::Disable { process } => (client_of(process)?, Some(process.0), Decision::Disabled),
            Action::Revoke { process, reason } => (
                client_of(process)?,
                Some(process.0),
                Decision::Revoked { reason: Label::Borrowed(reason.into()) },
            ),
            Action::Contended { .. } => return None,
            Action::Ended { client, held_ns, charged_ns, overrun_ns, how, .. } => {
                let charged = Decision::Charged {
                    reason: Label::Borrowed(how.into()),
                    held_ns,
                    charged_ns,
                    overrun_ns,
                };
                (client, None, charged)
            }
        })
    }

    /// The token-scheduled processes that hold grants as the recording begins: since when is not known.
    pub(crate) fn begin_held(&mut self, ledger: &TokenLedger, now: u64) {
        for (process, _) in ledger.members() {
            if !self.quanta.contains_key(&process) {
                self.begin_quantum(process, now, false);
            }
        }
    }

    /// Records which quanta of hardware-scheduled processes have begun and ended, and which quanta were returned.
    pub(crate) fn update_quanta(
        &mut self,
        ledger: &TokenLedger,
        scheduler: &ChannelGroupScheduler,
        now: u64,
    ) {
        self.end_returned(ledger, now);
        let running: BTreeMap<ProcessId, u64> = scheduler.running_processes().collect();
        let by_groups = self.quanta.iter().filter(|(_, quantum)| quantum.by_groups);
        let over: Vec<(ProcessId, u64)> = by_groups
            .filter(|(id, _)| !running.contains_key(id))
            .map(|(id, at)| (*id, at.since_ns))
            .collect();
        for (process, since_ns) in over {
            let disabled = scheduler.disabled_since(process).filter(|at| (since_ns..now).contains(at));
            self.end(process, disabled.unwrap_or(now));
        }
        for (process, enabled_since) in running {
            if !self.quanta.contains_key(&process) {
                let granted = self.granted.get(&process).copied().unwrap_or_default();
                self.begin_quantum(process, enabled_since.max(granted), true);
            }
        }
    }

    /// Records the slots of gangs, where they are others than before.
    pub(crate) fn update_slots(&mut self, slots: &Slots, now: u64) {
        let present: BTreeMap<ClientId, Slot> =
            slots.clients().filter_map(|client| Some((client, slots.of(client)?))).collect();
        if self.slots == present {
            return;
        }
        for (client, slot) in &present {
            if self.slots.get(client) != Some(slot) {
                self.push(gang_slot(*client, *slot, now));
            }
        }
        let before = std::mem::replace(&mut self.slots, present);
        for client in before.into_keys().filter(|client| slots.of(*client).is_none()) {
            self.push(TraceEvent::GangSlotEnded { at_ns: now, client: client.0 });
        }
    }

    fn end_returned(&mut self, ledger: &TokenLedger, now: u64) {
        let by_token = self.quanta.iter().filter(|(_, quantum)| !quantum.by_groups);
        let over: Vec<ProcessId> = by_token.map(|(id, _)| *id).filter(|id| !ledger.holds(*id)).collect();
        over.into_iter().for_each(|process| self.end(process, now));
    }

    fn begin_quantum(&mut self, process: ProcessId, since_ns: u64, by_groups: bool) {
        self.quanta.insert(process, Quantum { since_ns, by_groups });
        self.push(began(process, since_ns));
    }

    fn end(&mut self, process: ProcessId, at_ns: u64) {
        if self.quanta.remove(&process).is_some() {
            self.push(TraceEvent::QuantumEnded { at_ns, process: process.0 });
        }
    }
}

fn client(id: ClientId, name: String) -> TraceEvent {
    TraceEvent::Client { client: id.0, name }
}

fn process(id: ProcessId, client: ClientId, pid: Option<i32>) -> TraceEvent {
    TraceEvent::Process { process: id.0, client: client.0, pid }
}

fn began(process: ProcessId, at_ns: u64) -> TraceEvent {
    TraceEvent::QuantumBegan { at_ns, process: process.0 }
}

fn gang_slot(client: ClientId, slot: Slot, now: u64) -> TraceEvent {
    let Slot { start_ns, end_ns } = slot;
    TraceEvent::GangSlot { at_ns: now, client: client.0, start_ns, end_ns, cycle_ns: CYCLE_NS }
}

#[cfg(test)]
mod tests;
