//! What remains known after the manager did not run for a while, because it was stopped or the machine was suspended.
//!
//! Meanwhile the hooks have restored the default slices of their groups and enabled them. So no setting is known, and the
//! time of the pause belongs to no quantum.

use super::control::GroupId;
use super::process::QuantumState;
use super::scheduler::ChannelGroupScheduler;
use crate::ids::{ClientId, ProcessId};
use crate::ledger::TokenLedger;
use std::collections::BTreeSet;

impl ChannelGroupScheduler {
    /// The manager did not run from `stopped_at` until `now`. Marks the setting of every group as unknown, and withdraws
    /// the grants and requests of the hardware-scheduled processes as of `stopped_at`: the pause is charged to no client,
    /// and no client counts as having waited for it. Processes that are busy request a grant again.
    ///
    /// Groups that are being released keep what is known of them: their hooks set them to what the release aims at.
    /// Groups of disconnected processes stay frozen.
    pub fn rebuild(&mut self, tokens: &mut TokenLedger, stopped_at: u64, now: u64) {
        let clients: BTreeSet<ClientId> =
            self.hardware_scheduled().map(|(_, process)| process.client).collect();
        for client in &clients {
            tokens.set_enabled(*client, false, stopped_at);
        }
        let ids: Vec<ProcessId> = self.hardware_scheduled().map(|(id, _)| id).collect();
        for id in ids {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            process.quantum = QuantumState::Idle;
            tokens.withdraw(id, stopped_at);
        }
        let groups = self.processes.values().flat_map(|process| process.groups.iter().copied());
        for group in groups.collect::<Vec<GroupId>>() {
            self.reconciler.add(group);
        }
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.update_running(id, tokens, now));
    }

    /// Marks the settings of a process's groups as unknown: its hook may have set them to the driver's defaults.
    pub fn forget_settings(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let groups = self.processes.get(&id).into_iter().flat_map(|process| &process.groups);
        groups.for_each(|group| self.reconciler.add(*group));
        self.update_running(id, tokens, now);
    }
}
