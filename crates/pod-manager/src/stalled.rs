//! Stopped and frozen processes: they count as idle, and their grants end.
//!
//! [`StallDetector`] decides; this part reads what the kernel and the report pages show.

use crate::channel_groups::ChannelGroups;
use crate::party::Party;
use crate::peer::Peers;
use crate::shared::Shared;
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
    pub(crate) fn next_deadline(&self, shared: &Shared) -> Option<u64> {
        let deadline = shared.grants.ledger.holders().map(|(_, deadline)| deadline).min()?;
        Some(deadline.max(self.examined_at).saturating_add(OVERDUE_NS))
    }

    /// Examines the processes that are due. Before the ledger decides.
    pub(crate) fn update(&mut self, peers: &mut dyn Peers, groups: &ChannelGroups, shared: &mut Shared) {
        observe(peers, groups, shared);
        let now = shared.io.now();
        if self.next_deadline(shared).is_some_and(|at| at <= now) {
            self.examined_at = now;
            if !shared.grants.ledger.is_withheld() {
                end_overdue_grants(peers, groups, shared);
            }
        }
    }
}

/// Observes the processes whose activity delays others: hardware-scheduled ones in their quanta, latency-critical ones, and those
/// that are stalled already.
fn observe(peers: &mut dyn Peers, groups: &ChannelGroups, shared: &mut Shared) {
    let Shared { clients, processes, io, .. } = shared;
    let now = io.now();
    let watched: Vec<ProcessId> = groups.scheduler.observed_processes().collect();
    for id in watched {
        let Some(process) = processes.get_mut(id) else { continue };
        let quantum = groups.scheduler.quantum_state(id);
        let is_critical = clients.is_critical(process.client);
        let Some(pages) = process.pages.as_ref().filter(|pages| pages.reports_activity()) else { continue };
        if quantum.is_none() && !is_critical {
            process.stall = StallDetector::default();
            continue;
        }
        let may_run = is_critical || matches!(quantum, Some(QuantumState::Granted | QuantumState::Ending));
        process.stall.set_running(may_run, now);
        let was_stalled = process.stall.stalled_since().is_some();
        let Some(pid) = process.pid.filter(|_| (may_run || was_stalled) && process.stall.is_due(now)) else {
            continue;
        };
        let Some(cpu_ns) = peers.cpu_ns(pid) else { continue };
        let progress = Progress { cpu_ns, gpu_ns: pages.report().busy_ns(), activity: pages.activity() };
        process.stall.observe(progress, || peers.is_stopped(pid), now);
        let is_stalled = process.stall.stalled_since().is_some();
        if is_stalled != was_stalled && io.may_log("stalled", Party::Client(process.client)).is_some() {
            let (client, peer) = (clients.name(process.client), &process.label);
            info!(client, %peer, is_stalled, "process that reports work was examined: it counts as idle while it is stalled");
        }
    }
}

/// Ends the grants of token-scheduled processes that are stopped past their deadlines. The CPU clock is no evidence for them: the
/// hook's tracker may sleep while it waits for the end of a long kernel.
fn end_overdue_grants(peers: &mut dyn Peers, groups: &ChannelGroups, shared: &mut Shared) {
    let now = shared.io.now();
    let overdue: Vec<_> = shared
        .grants
        .ledger
        .holders()
        .filter(|(_, deadline)| deadline.saturating_add(OVERDUE_NS) <= now)
        .flat_map(|(client, _)| shared.processes.ids_of_client(client))
        .filter(|id| shared.grants.ledger.holds(*id) && !groups.is_hardware_scheduled(*id))
        .collect();
    for id in overdue {
        if is_stopped(id, peers, shared) {
            let cause = shared.processes.client_of(id).into();
            if shared.io.may_log("stopped", cause).is_some() {
                let peer = shared.processes.label(id);
                warn!(peer, "process is stopped past the deadline of its grant, which ends");
            }
            // It is charged the time held.
            shared.return_grant(id, u64::MAX, 0);
        }
    }
}

fn is_stopped(id: ProcessId, peers: &mut dyn Peers, shared: &Shared) -> bool {
    let pid = shared.processes.get(id).and_then(|process| process.pid);
    pid.is_some_and(|pid| peers.is_stopped(pid))
}
