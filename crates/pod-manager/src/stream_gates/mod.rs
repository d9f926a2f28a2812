//! The stream gates: closed while a latency-critical process is busy, so that what best-effort processes have submitted does not begin.

use crate::clients::Clients;
use crate::config::GatedProcesses;
use crate::io::Io;
use crate::processes::{Process, Processes, activity, pages};
use sluice_core::ProcessId;
use sluice_core::channel_groups::Activity;
use sluice_core::ledger::TokenLedger;
use sluice_core::stream_gates::{Announced, GatePolicy, GateState, Gates};
use std::collections::{BTreeSet, HashMap};

/// The state of the gates, and which processes have gates.
pub(crate) struct StreamGates {
    gates: Gates,
    of: GatedProcesses,
    /// Work that latency-critical processes have announced and that has not come yet.
    announced: HashMap<ProcessId, Announced>,
    /// Processes that are told to hold back what they have submitted.
    gated: BTreeSet<ProcessId>,
    /// Processes that may have become gated since the last update, or are no longer.
    changed: BTreeSet<ProcessId>,
    /// How often a process was compared or told, for tests.
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

impl StreamGates {
    pub(crate) fn new(policy: GatePolicy, of: GatedProcesses) -> Self {
        Self {
            gates: Gates::new(policy),
            of,
            announced: HashMap::new(),
            gated: BTreeSet::new(),
            changed: BTreeSet::new(),
            #[cfg(test)]
            visits: std::cell::Cell::default(),
        }
    }

    /// Replaces the settings. Each process may have gates from now on, or none any more.
    pub(crate) fn set_policy(&mut self, policy: GatePolicy, of: GatedProcesses, processes: &Processes) {
        self.gates.set_policy(policy);
        if self.of != of {
            self.of = of;
            self.changed.extend(processes.iter().map(|(id, _)| id));
        }
    }

    /// When to read the activity of latency-critical processes again.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.gates.wake_at()
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        self.announced.remove(&id);
        self.gated.remove(&id);
        self.changed.remove(&id);
    }

    /// A process has attached or disconnected, or is scheduled in another way.
    pub(crate) fn process_changed(&mut self, id: ProcessId) {
        self.changed.insert(id);
    }

    /// A process announces that work of its own begins in `lead_us`: for a latency-critical process that counts as work.
    pub(crate) fn announce(
        &mut self,
        id: ProcessId,
        lead_us: u32,
        now: u64,
        clients: &Clients,
        processes: &Processes,
    ) {
        let Some(process) = processes.get(id) else { return };
        let reports = process.endpoint.pages.as_ref().is_some_and(|pages| pages.reports_activity());
        if reports && clients.is_critical(process.client) {
            let announced = Announced::at(now, u64::from(lead_us) * 1_000);
            self.announced.extend(announced.map(|announced| (id, announced)));
        }
    }

    /// Closes and opens the gates, and has the ledger withhold grants while they are closed. Before the ledger decides.
    pub(crate) fn update(
        &mut self,
        clients: &Clients,
        processes: &mut Processes,
        ledger: &mut TokenLedger,
        io: &Io,
    ) {
        let changed = self.regroup(clients, processes);
        let before = self.gates.state();
        if !before.is_wanted() && !processes.scheduler.has_critical() {
            return;
        }
        let now = io.now();
        let critical = self.read_critical(clients, processes, ledger.critical_processes(), now);
        // Beside default slices the latency-critical processes are host-bound: their bursts are mostly preparation by the host, for which
        // the gates would hold best-effort work back.
        let closes = !self.gated.is_empty() && !processes.scheduler.default_slices();
        let critical = if closes { critical } else { Vec::new() };
        let announced_until = self.announced.values().map(|announced| announced.until).max();
        let state = self.gates.update(now, announced_until, critical.into_iter());
        if state != before {
            io.metrics.stream_gates.changed(state);
        }
        ledger.set_withheld(state.is_closed(), now);
        let told = |state: GateState| (state.is_wanted(), state.is_closed());
        if told(state) == told(before) {
            self.tell(changed.iter(), processes);
        } else {
            self.tell(changed.union(&self.gated), processes);
        }
    }

    /// Brings the set of gated processes up to date. Returns the processes that were compared.
    fn regroup(&mut self, clients: &Clients, processes: &Processes) -> BTreeSet<ProcessId> {
        let changed = std::mem::take(&mut self.changed);
        for id in &changed {
            self.count_visit();
            if self.is_gated(*id, clients, processes) {
                self.gated.insert(*id);
            } else {
                self.gated.remove(id);
            }
        }
        changed
    }

    /// Writes on the pages of these processes whether they need gates and whether these are closed.
    fn tell<'a>(&self, ids: impl Iterator<Item = &'a ProcessId>, processes: &Processes) {
        let state = self.gates.state();
        for id in ids {
            self.count_visit();
            let pages = pages(processes, *id).filter(|pages| pages.reports_activity());
            if let Some(pages) = pages {
                let is_gated = self.gated.contains(id);
                pages.set_gate(is_gated && state.is_wanted(), is_gated && state.is_closed());
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
            let activity = activity(process);
            let Some(pages) = process.endpoint.pages.as_mut().filter(|pages| pages.reports_activity()) else {
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
    fn is_gated(&self, id: ProcessId, clients: &Clients, processes: &Processes) -> bool {
        let concerned = match self.of {
            GatedProcesses::Off => false,
            GatedProcesses::TokenScheduled => !processes.is_hardware_scheduled(id),
            GatedProcesses::All => true,
        };
        let process = processes.get(id);
        concerned
            && process.is_some_and(|process| process.is_attached() && !clients.is_critical(process.client))
    }

    fn count_visit(&self) {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
    }

    /// Whether the gates need a wake-up when this process becomes busy.
    pub(crate) fn needs_wakeup(&self, process: &Process, clients: &Clients) -> bool {
        self.gates.state() == GateState::Open && process.is_attached() && clients.is_critical(process.client)
    }
}

#[cfg(test)]
mod tests;
