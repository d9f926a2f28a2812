//! Stopped processes: their groups stay disabled and nothing is requested for them until they are resumed.
//!
//! A process is stopped because it changes its groups itself. So nothing is known about them, and they are disabled anew each time.

use super::process::QuantumState;
use super::scheduler::ChannelGroupScheduler;
use crate::ids::ProcessId;
use crate::ledger::TokenLedger;

impl ChannelGroupScheduler {
    /// Disables the groups of a best-effort process, also those that it announces later, until [`Self::resume_process`]. If it is
    /// stopped already, its groups are disabled anew. Returns `false` for other processes: latency-critical ones are never disabled.
    pub fn stop_process(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) -> bool {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.is_best_effort()) else {
            return false;
        };
        process.stopped = true;
        if process.quantum == QuantumState::Waiting {
            tokens.withdraw(id, now);
            process.quantum = QuantumState::Idle;
        }
        for group in &process.groups {
            self.reconciler.add(*group);
            self.enabled_group.take_if(|enabled| enabled == group);
        }
        self.update_running(id, tokens, now);
        true
    }

    /// Whether a process is stopped. One that announces its groups anew after it had none is not.
    pub fn is_stopped(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.stopped)
    }

    /// Schedules a stopped process like others again.
    pub fn resume_process(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.stopped = false;
        }
    }
}
