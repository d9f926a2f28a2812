//! Probation: a process of which a control failed is scheduled by token until its groups can be controlled again.
//!
//! Its groups are set free as far as possible and stay under control: their owner need not announce them again. When all of them
//! are free and the delay of [`Failures`](super::failures::Failures) has passed, the process is hardware-scheduled again.
//! Other processes of its client are not concerned.

use super::process::QuantumState;
use super::scheduler::ChannelGroupScheduler;
use crate::ids::ProcessId;
use crate::ledger::{ReturnKind, TokenLedger};

impl ChannelGroupScheduler {
    /// Schedules a process by token and sets its groups free. Returns `false` if it is on probation already.
    pub(super) fn begin_probation(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) -> bool {
        let Some(process) = self.processes.get_mut(&id).filter(|process| !process.on_probation) else {
            return false;
        };
        (process.on_probation, process.quantum) = (true, QuantumState::Idle);
        (process.ended_at, process.enabled_since) = (None, None);
        for group in &process.groups {
            self.reconciler.set_free(*group);
            self.enabled_group.take_if(|enabled| enabled == group);
        }
        if process.is_best_effort() {
            let client = process.client;
            // It may have left the ledger already.
            let _ = tokens.set_kind(id, ReturnKind::Returns, now);
            self.update_client_running(client, tokens, now);
        }
        true
    }

    /// Takes the processes from probation whose groups can be controlled again. Returns them.
    pub fn end_probation(&mut self, tokens: &mut TokenLedger, now: u64) -> Vec<ProcessId> {
        let on_probation = self.processes.iter_mut().filter(|(_, process)| process.on_probation);
        let mut ended = Vec::new();
        for (id, process) in on_probation {
            if process.groups.iter().all(|group| self.reconciler.is_proven(*group, now)) {
                process.on_probation = false;
                ended.push(*id);
            }
        }
        ended.iter().for_each(|id| self.schedule_by_quanta(*id, tokens, now));
        ended
    }

    /// From here on the quanta of a process are enforced through its groups, if it has some that are relied on.
    pub(super) fn schedule_by_quanta(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.is_hardware_scheduled() && tokens.set_kind(id, ReturnKind::HardwareScheduled, now).is_ok()
        {
            process.quantum = if tokens.holds(id) { QuantumState::Granted } else { process.quantum };
        }
        self.update_running(id, tokens, now);
    }

    /// Whether a control of a process has failed, and the process is scheduled by token meanwhile.
    pub fn is_on_probation(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.on_probation)
    }

    /// How many processes are on probation.
    pub fn on_probation(&self) -> usize {
        self.processes.values().filter(|process| process.on_probation).count()
    }
}
