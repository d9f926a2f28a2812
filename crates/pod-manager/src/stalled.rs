//! Stopped and frozen processes: they count as idle, and their grants end.
//!
//! [`StallDetector`] decides; this part reads what the kernel and the report pages show.

use crate::clients::Clients;
use crate::grants::Grants;
use crate::io::Io;
use crate::party::Party;
use crate::peer::Peers;
use crate::processes::{Processes, label};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{Progress, QuantumState, StallDetector};
use tracing::{info, warn};

/// How often holders of overdue grants are examined, and how long after the deadline first: a holder that drains returns its grant
/// within this time, unless a kernel is long.
const OVERDUE_NS: u64 = 50_000_000;

/// Examines the processes that delay others.
#[derive(Default)]
pub(crate) struct StalledProcesses {
    /// When holders of overdue grants were examined.
    examined_at: u64,
}

impl StalledProcesses {
    /// When a holder of an overdue grant is to be examined.
    pub(crate) fn next_deadline(&self, grants: &Grants) -> Option<u64> {
        let deadline = grants.ledger.holders().map(|(_, deadline)| deadline).min()?;
        Some(deadline.max(self.examined_at).saturating_add(OVERDUE_NS))
    }

    /// Examines the processes that are due. Before the ledger decides.
    pub(crate) fn update(
        &mut self,
        peers: &mut dyn Peers,
        clients: &Clients,
        processes: &mut Processes,
        grants: &mut Grants,
        io: &mut Io,
    ) {
        observe(peers, clients, processes, io);
        let now = io.now();
        if self.next_deadline(grants).is_some_and(|at| at <= now) {
            self.examined_at = now;
            end_overdue_grants(peers, processes, grants, io);
        }
    }
}

/// Observes the processes whose activity delays others: hardware-scheduled ones in their quanta, latency-critical ones, and those
/// that are stalled already.
fn observe(peers: &mut dyn Peers, clients: &Clients, processes: &mut Processes, io: &mut Io) {
    let now = io.now();
    let watched: Vec<ProcessId> = processes.scheduler.observed_processes().collect();
    for id in watched {
        let quantum = processes.scheduler.quantum_state(id);
        let Some(process) = processes.get_mut(id) else { continue };
        let (client, pid) = (process.client, process.pid);
        let is_critical = clients.is_critical(client);
        let endpoint = &mut process.endpoint;
        let Some(pages) = endpoint.pages.as_ref().filter(|pages| pages.reports_activity()) else { continue };
        if quantum.is_none() && !is_critical {
            endpoint.stall = StallDetector::default();
            continue;
        }
        let may_run = is_critical || matches!(quantum, Some(QuantumState::Granted | QuantumState::Ending));
        endpoint.stall.set_running(may_run, now);
        let was_stalled = endpoint.stall.stalled_since().is_some();
        let Some(pid) = pid.filter(|_| (may_run || was_stalled) && endpoint.stall.is_due(now)) else {
            continue;
        };
        let Some(cpu_ns) = peers.cpu_ns(pid) else { continue };
        let progress = Progress { cpu_ns, gpu_ns: pages.report().busy_ns(), activity: pages.activity() };
        endpoint.stall.observe(progress, || peers.is_stopped(pid), now);
        let is_stalled = endpoint.stall.stalled_since().is_some();
        if is_stalled != was_stalled && io.may_log("stalled", Party::Client(client)).is_some() {
            let (client, peer) = (clients.name(client), &endpoint.label);
            info!(client, %peer, is_stalled, "process that reports work was examined: it counts as idle while it is stalled");
        }
    }
}

/// Ends the grants of token-scheduled processes that are stopped past their deadlines. The CPU clock is no evidence for them: the
/// hook's tracker may sleep while it waits for the end of a long kernel.
fn end_overdue_grants(peers: &mut dyn Peers, processes: &Processes, grants: &mut Grants, io: &mut Io) {
    let now = io.now();
    let overdue: Vec<_> = grants
        .ledger
        .holders()
        .filter(|(_, deadline)| deadline.saturating_add(OVERDUE_NS) <= now)
        .flat_map(|(client, _)| processes.ids_of_client(client))
        .filter(|id| grants.ledger.holds(*id) && !processes.is_hardware_scheduled(*id))
        .collect();
    for id in overdue {
        let pid = processes.get(id).and_then(|process| process.pid);
        if pid.is_some_and(|pid| peers.is_stopped(pid)) {
            let cause = processes.client_of(id).into();
            if io.may_log("stopped", cause).is_some() {
                let peer = label(processes, id);
                warn!(peer, "process is stopped past the deadline of its grant, which ends");
            }
            // It is charged the time held.
            grants.return_grant(id, u64::MAX, 0, processes, now);
        }
    }
}
