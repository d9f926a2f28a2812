//! What clients use: latency-critical ones are charged what they report, and the exported GPU time of each client.

use super::{Grants, seconds};
use crate::clients::Clients;
use crate::processes::{Processes, activity};
use crate::trace::Tracer;
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeMap;

impl Grants {
    /// Charges every latency-critical client up to now. Before the ledger decides: what they used is not charged to others.
    pub(crate) fn charge_critical(
        &mut self,
        clients: &mut Clients,
        processes: &mut Processes,
        trace: &mut Tracer,
        now: u64,
    ) {
        for id in self.ledger.critical_processes() {
            self.read_usage(id, clients, processes, trace, now);
        }
    }

    /// Reads what a process has used since it was last read. A latency-critical client is charged for it. For others the ledger counts, and
    /// the report only lowers what is exported.
    pub(crate) fn read_usage(
        &mut self,
        id: ProcessId,
        clients: &mut Clients,
        processes: &mut Processes,
        trace: &mut Tracer,
        now: u64,
    ) {
        let Some(process) = processes.get_mut(id) else { return };
        let (client_id, critical) = (process.client, clients.is_critical(process.client));
        let Some(client) = clients.get_mut(client_id) else { return };
        // A process that is frozen in a burst does not count as busy.
        let activity = activity(process);
        let Some(pages) = process.endpoint.pages.as_mut() else { return };
        let (from, busy_ns) = pages.read_busy(activity, now);
        if critical {
            let (held_from, hold_ns) = pages.read_holds(now);
            let leads = pages.grant().lead_ns() > 0;
            client.metrics.grants.hold_seconds.inc_by(seconds(hold_ns));
            if let Some(recording) = trace.recording() {
                recording.worked(id, (from, busy_ns), activity, now);
                recording.held(id, hold_ns, now);
            }
            let postponed_ns = pages.read_postponed(now);
            client.metrics.grants.postponed_seconds.inc_by(seconds(postponed_ns));
            if hold_ns > 0 {
                self.ledger.count_holds(client_id, held_from, now, hold_ns, leads);
            }
            if busy_ns > 0 {
                self.ledger.count_bursts(pages.read_bursts(), busy_ns);
                self.ledger.charge_unlimited(client_id, from, now, busy_ns);
            }
        } else {
            client.gpu_time.add_busy(busy_ns);
        }
    }

    /// Charges a client up to now, and begins anew: its class is about to change.
    pub(crate) fn settle_client(
        &mut self,
        client: ClientId,
        clients: &mut Clients,
        processes: &mut Processes,
        trace: &mut Tracer,
        now: u64,
    ) {
        self.count_gpu_time(client, clients, processes, trace, now);
        for id in processes.ids_of_client(client) {
            if let Some(pages) = processes.get_mut(id).and_then(|process| process.endpoint.pages.as_mut()) {
                pages.restart_busy(now);
            }
        }
    }

    /// Adds what a client has used since the last time to its exported GPU time.
    pub(crate) fn count_gpu_time(
        &mut self,
        id: ClientId,
        clients: &mut Clients,
        processes: &mut Processes,
        trace: &mut Tracer,
        now: u64,
    ) {
        let ids = processes.ids_of_client(id);
        ids.iter().for_each(|process| self.read_usage(*process, clients, processes, trace, now));
        let Some(usage) = self.ledger.usage(id, now) else { return };
        let Some(client) = clients.get_mut(id) else { return };
        let delayed_ns =
            usage.delayed_ns.saturating_sub(std::mem::replace(&mut client.delayed_ns, usage.delayed_ns));
        client.metrics.grants.delayed_seconds.inc_by(seconds(delayed_ns));
        // Token-scheduled processes are charged what they measured. Hardware-scheduled ones are charged the time for which they were enabled,
        // and may have been idle for a part of it.
        let shows_hardware_grant = |process: &ProcessId| {
            let pages = crate::processes::pages(processes, *process);
            pages.is_some_and(|pages| pages.shows_hardware_grant && pages.reports_activity())
        };
        let by_report = !ids.is_empty() && ids.iter().all(shows_hardware_grant);
        let used_ns = client.gpu_time.count(now, usage.charged_ns, usage.running_ns, by_report);
        client.metrics.grants.gpu_seconds.inc_by(seconds(used_ns));
    }

    /// The manager did not run from `from` to `to`, and the GPU alternated between all processes with work by time slice. That time is
    /// exported in equal parts for the clients whose processes report work, or had it before and have it now: a hook that found the
    /// manager silent has begun its burst anew and does not report the earlier one. It is charged to none.
    pub(crate) fn export_unseen(from: u64, to: u64, clients: &mut Clients, processes: &mut Processes) {
        let unseen = to.saturating_sub(from);
        let mut used: BTreeMap<ClientId, u64> = BTreeMap::new();
        for (_, process) in processes.iter_mut() {
            if clients.is_critical(process.client) {
                continue;
            }
            let activity = activity(process);
            let Some(pages) = process.endpoint.pages.as_mut() else { continue };
            let worked = activity.busy && pages.was_busy();
            let busy_ns = pages.read_busy(activity, to).1;
            // The burst that runs now is counted from here on.
            pages.restart_busy(to);
            *used.entry(process.client).or_default() += if worked { unseen } else { busy_ns };
        }
        used.retain(|_, busy_ns| *busy_ns > 0);
        let part = unseen / (used.len().max(1) as u64);
        for (id, busy_ns) in used {
            let Some(client) = clients.get_mut(id) else { continue };
            let used_ns = client.gpu_time.add_unseen(from, to, busy_ns.min(part));
            client.metrics.grants.gpu_seconds.inc_by(seconds(used_ns));
        }
    }

    /// Brings the exported shares and GPU times up to now.
    pub(crate) fn refresh_shares(
        &mut self,
        clients: &mut Clients,
        processes: &mut Processes,
        trace: &mut Tracer,
        now: u64,
    ) {
        let ids: Vec<ClientId> = clients.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.count_gpu_time(id, clients, processes, trace, now);
            if let Some(client) = clients.get(id) {
                client.metrics.grants.share.set(client.gpu_time.share(now).as_fraction());
            }
        }
    }
}
