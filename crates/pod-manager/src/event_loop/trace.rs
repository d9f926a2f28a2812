//! The part of the event loop that traces: names, quanta and slots are compared with what was recorded, once a round and only with a reader.

use super::EventLoop;
use crate::trace::TraceBatch;
use sluice_core::ClientId;
use sluice_core::channel_groups::{Control, ControlOutcome};
use std::time::Duration;

impl EventLoop {
    /// A reader of the trace connects. `None`: there are as many as there may be.
    pub(super) fn trace_joined(&mut self) -> Option<TraceBatch> {
        if !self.io.trace.join() {
            return None;
        }
        let now = self.io.now();
        self.trace_state(now);
        if let Some(recording) = self.io.trace.recording() {
            recording.begin_held(&self.grants.ledger, now);
        }
        self.io.trace.begin(now)
    }

    /// Reads what latency-critical processes report, if it is time: without a reader that is done when it is needed.
    pub(super) fn trace_sample(&mut self, now: u64) {
        let is_due = self.io.trace.recording().is_some_and(|recording| recording.takes_sample(now));
        if is_due {
            let Self { clients, processes, io, .. } = self;
            clients.refresh_latencies(processes, &mut io.trace, now);
        }
    }

    /// A control has ended that took so long.
    pub(super) fn trace_control(
        &mut self,
        control: Control,
        outcome: ControlOutcome,
        took: Duration,
        client: Option<ClientId>,
    ) {
        let now = self.io.now();
        let Some(recording) = self.io.trace.recording() else { return };
        recording.control_ended(control, outcome, took, client, now);
    }

    /// Records what has changed in this round.
    pub(super) fn trace_round(&mut self) {
        if self.io.trace.is_on() {
            self.trace_state(self.io.now());
        }
    }

    fn trace_state(&mut self, now: u64) {
        let Self { clients, processes, grants, io, .. } = self;
        let Some(recording) = io.trace.recording() else { return };
        for (id, client) in clients.iter() {
            recording.name_client(id, &client.name);
        }
        for (id, process) in processes.iter() {
            recording.name_process(id, process.client, process.pid);
        }
        recording.update_quanta(&grants.ledger, &processes.scheduler, now);
        recording.update_slots(grants.ledger.slots(), now);
    }
}
