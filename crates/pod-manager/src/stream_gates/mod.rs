//! The stream gates: closed while a latency-critical process is busy, so that what best-effort processes have submitted does not begin.

use crate::channel_groups::ChannelGroups;
use crate::clients::{Clients, Process, Processes};
use crate::config::GatedProcesses;
use crate::shared::Shared;
use sluice_core::ProcessId;
use sluice_core::channel_groups::Activity;
use sluice_core::stream_gates::{Announced, GatePolicy, GateState, Gates};
use std::collections::HashMap;

/// The state of the gates, and which processes have gates.
pub(crate) struct StreamGates {
    gates: Gates,
    of: GatedProcesses,
    /// Work that latency-critical processes have announced and that has not come yet.
    announced: HashMap<ProcessId, Announced>,
}

impl StreamGates {
    pub(crate) fn new(policy: GatePolicy, of: GatedProcesses) -> Self {
        Self { gates: Gates::new(policy), of, announced: HashMap::new() }
    }

    /// When to read the activity of latency-critical processes again.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.gates.wake_at()
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        self.announced.remove(&id);
    }

    /// A process announces that work of its own begins in `lead_us`: for a latency-critical process that counts as work.
    pub(crate) fn announce(&mut self, id: ProcessId, lead_us: u32, now: u64, shared: &Shared) {
        let Some(process) = shared.processes.get(id) else { return };
        let reports = process.pages.as_ref().is_some_and(|pages| pages.reports_activity());
        if reports && shared.clients.is_critical(process.client) {
            let announced = Announced::at(now, u64::from(lead_us) * 1_000);
            self.announced.extend(announced.map(|announced| (id, announced)));
        }
    }

    /// Closes and opens the gates, and has the ledger withhold grants while they are closed. Before the ledger decides.
    pub(crate) fn update(&mut self, groups: &ChannelGroups, shared: &mut Shared) {
        let before = self.gates.state();
        if !before.is_wanted() && !groups.scheduler.has_critical() {
            return;
        }
        let Shared { clients, processes, grants, io } = shared;
        let now = io.now();
        let critical = self.read_critical(clients, processes, grants.ledger.critical_processes(), now);
        let is_gated = self.of != GatedProcesses::Off
            && processes.iter().any(|(id, process)| self.has_gates(id, process, clients, groups));
        // Beside default slices the latency-critical processes are host-bound: their bursts are mostly preparation by the host, for which
        // the gates would hold best-effort work back.
        let closes = is_gated && !groups.scheduler.default_slices();
        let critical = if closes { critical } else { Vec::new() };
        let announced_until = self.announced.values().map(|announced| announced.until).max();
        let state = self.gates.update(now, announced_until, critical.into_iter());
        if state != before {
            io.metrics.stream_gates.changed(state);
        }
        if !(state.is_wanted() || before.is_wanted()) {
            return;
        }
        grants.ledger.set_withheld(state.is_closed(), now);
        for (id, process) in processes.iter() {
            let gated = self.has_gates(id, process, clients, groups);
            if let Some(pages) = process.pages.as_ref().filter(|pages| pages.reports_activity()) {
                pages.set_gate(gated && state.is_wanted(), gated && state.is_closed());
                grants.ledger.set_gated(id, gated && pages.report().gates() != 0);
            }
        }
    }

    /// The activity of all latency-critical processes whose hooks report it. Takes note of what they have announced on their pages.
    fn read_critical(
        &mut self,
        clients: &Clients,
        processes: &mut Processes,
        ids: Vec<ProcessId>,
        now: u64,
    ) -> Vec<Activity> {
        // Announcements end at their time. The loop below does not visit processes that are no longer latency-critical or attached.
        self.announced.retain(|_, announced| now < announced.until);
        let mut critical = Vec::new();
        for id in ids {
            let Some(process) = processes.get_mut(id).filter(|process| process.is_attached()) else {
                continue;
            };
            let activity = process.activity();
            let Some(pages) = process.pages.as_mut().filter(|pages| pages.reports_activity()) else {
                continue;
            };
            if !clients.is_critical(process.client) {
                continue;
            }
            if pages.has_announced() {
                pages.announced_seen = pages.report().announced_ns();
                self.announced
                    .extend(Announced::on_page(now, pages.announced_seen).map(|announced| (id, announced)));
            }
            if self.announced.get(&id).is_some_and(|announced| announced.is_over(now, activity)) {
                self.announced.remove(&id);
            }
            critical.push(activity);
        }
        critical
    }

    /// Whether a process is told to hold back what it has submitted.
    fn has_gates(&self, id: ProcessId, process: &Process, clients: &Clients, groups: &ChannelGroups) -> bool {
        let concerned = match self.of {
            GatedProcesses::Off => false,
            GatedProcesses::TokenScheduled => !groups.is_hardware_scheduled(id),
            GatedProcesses::All => true,
        };
        concerned && process.is_attached() && !clients.is_critical(process.client)
    }

    /// Whether the gates need a wake-up when this process becomes busy.
    pub(crate) fn needs_wakeup(&self, process: &Process, clients: &Clients) -> bool {
        self.gates.state() == GateState::Open && process.is_attached() && clients.is_critical(process.client)
    }
}

#[cfg(test)]
mod tests;
