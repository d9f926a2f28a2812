//! What clients use: latency-critical ones are charged what they report, and the exported GPU time of each client.

use super::seconds;
use crate::shared::Shared;
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeMap;

impl Shared {
    /// Charges every latency-critical client up to now. Before the ledger decides: what they used is not charged to others.
    pub(crate) fn charge_critical(&mut self) {
        for id in self.grants.ledger.critical_processes() {
            self.read_usage(id);
        }
    }

    /// Reads what a process has used since it was last read. A latency-critical client is charged for it. For others the ledger counts, and
    /// the report only lowers what is exported.
    pub(crate) fn read_usage(&mut self, id: ProcessId) {
        let now = self.io.now();
        let Some(process) = self.processes.get_mut(id) else { return };
        let critical = self.clients.is_critical(process.client);
        let Some(client) = self.clients.get_mut(process.client) else { return };
        // A process that is frozen in a burst does not count as busy.
        let activity = process.activity();
        let Some(pages) = process.pages.as_mut() else { return };
        let (from, busy_ns) = pages.read_busy(activity, now);
        if critical {
            let (held_from, hold_ns) = pages.read_holds(now);
            client.metrics.grants.hold_seconds.inc_by(seconds(hold_ns));
            let postponed_ns = pages.read_postponed(now);
            client.metrics.grants.postponed_seconds.inc_by(seconds(postponed_ns));
            if hold_ns > 0 {
                self.grants.ledger.count_holds(process.client, held_from, now, hold_ns);
            }
            if busy_ns > 0 {
                self.grants.ledger.count_bursts(pages.read_bursts(), busy_ns);
                self.grants.ledger.charge_unlimited(process.client, from, now, busy_ns);
            }
        } else {
            client.gpu_time.add_busy(busy_ns);
        }
    }

    /// Charges a client up to now, and begins anew: its class is about to change.
    pub(crate) fn settle_client(&mut self, client: ClientId) {
        self.count_gpu_time(client);
        let now = self.io.now();
        for id in self.processes.ids_of_client(client) {
            if let Some(pages) = self.processes.get_mut(id).and_then(|process| process.pages.as_mut()) {
                pages.restart_busy(now);
            }
        }
    }

    /// Adds what a client has used since the last time to its exported GPU time.
    pub(crate) fn count_gpu_time(&mut self, id: ClientId) {
        let now = self.io.now();
        let processes = self.processes.ids_of_client(id);
        processes.iter().for_each(|process| self.read_usage(*process));
        let Some(usage) = self.grants.ledger.usage(id, now) else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        let delayed_ns =
            usage.delayed_ns.saturating_sub(std::mem::replace(&mut client.delayed_ns, usage.delayed_ns));
        client.metrics.grants.delayed_seconds.inc_by(seconds(delayed_ns));
        // Token-scheduled processes are charged what they measured. Hardware-scheduled ones are charged the time for which they were enabled,
        // and may have been idle for a part of it.
        let shows_hardware_grant = |process: &ProcessId| {
            let pages = self.processes.get(*process).and_then(|process| process.pages.as_ref());
            pages.is_some_and(|pages| pages.shows_hardware_grant && pages.reports_activity())
        };
        let by_report = !processes.is_empty() && processes.iter().all(shows_hardware_grant);
        let used_ns = client.gpu_time.count(now, usage.charged_ns, usage.running_ns, by_report);
        client.metrics.grants.gpu_seconds.inc_by(seconds(used_ns));
    }

    /// The manager did not run from `from` to `to`, and the GPU alternated between all processes with work by time slice. That time is
    /// exported in equal parts for the clients whose processes report work, or had it before and have it now: a hook that found the
    /// manager silent has begun its burst anew and does not report the earlier one. It is charged to none.
    pub(crate) fn export_unseen(&mut self, from: u64, to: u64) {
        let unseen = to.saturating_sub(from);
        let mut used: BTreeMap<ClientId, u64> = BTreeMap::new();
        for (_, process) in self.processes.iter_mut() {
            if self.clients.is_critical(process.client) {
                continue;
            }
            let activity = process.activity();
            let Some(pages) = process.pages.as_mut() else { continue };
            let worked = activity.busy && pages.was_busy();
            let busy_ns = pages.read_busy(activity, to).1;
            // The burst that runs now is counted from here on.
            pages.restart_busy(to);
            *used.entry(process.client).or_default() += if worked { unseen } else { busy_ns };
        }
        used.retain(|_, busy_ns| *busy_ns > 0);
        let part = unseen / (used.len().max(1) as u64);
        for (id, busy_ns) in used {
            let Some(client) = self.clients.get_mut(id) else { continue };
            let used_ns = client.gpu_time.add_unseen(from, to, busy_ns.min(part));
            client.metrics.grants.gpu_seconds.inc_by(seconds(used_ns));
        }
    }

    /// Brings the exported shares and GPU times up to now.
    pub(crate) fn refresh_shares(&mut self) {
        let ids: Vec<ClientId> = self.clients.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.count_gpu_time(id);
            if let Some(client) = self.clients.get(id) {
                client.metrics.grants.share.set(client.gpu_time.share(self.io.now()).as_fraction());
            }
        }
    }
}
