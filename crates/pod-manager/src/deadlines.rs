//! Deadlines between latency-critical clients: reads their reports, and shows each process the urgent work of the others.

use crate::clients::Clients;
use crate::processes::{Process, Processes, activity, pages};
use sluice_core::ProcessId;
use sluice_core::deadlines::{DeadlineOrder, DeadlinePolicy, Service, UrgentWork};
use sluice_core::ledger::TokenLedger;
use std::collections::BTreeSet;

/// The order of the latency-critical clients by deadline.
pub(crate) struct Deadlines {
    order: DeadlineOrder,
    /// Processes whose pages may show urgent work.
    shown: BTreeSet<ProcessId>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { order: DeadlineOrder::new(DeadlinePolicy::default()), shown: BTreeSet::new() }
    }
}

impl Deadlines {
    /// When to read the reports again.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.order.wake_at()
    }

    /// Whether a wake-up is needed when this process becomes busy: its work is urgent for another client.
    pub(crate) fn needs_wakeup(&self, id: ProcessId, process: &Process) -> bool {
        process.is_attached() && self.order.needs_wakeup(id)
    }

    /// Shows each latency-critical process the work of clients with an earlier deadline.
    pub(crate) fn update(
        &mut self,
        clients: &Clients,
        processes: &Processes,
        ledger: &TokenLedger,
        now: u64,
    ) {
        let mut services = Vec::new();
        for id in ledger.critical_processes() {
            let Some(process) = processes.get(id).filter(|process| process.is_attached()) else { continue };
            let Some(pages) = process.endpoint.pages.as_ref().filter(|pages| pages.reports_activity()) else {
                continue;
            };
            let Some(client) = clients.get(process.client) else { continue };
            services.push(Service {
                process: id,
                client: process.client,
                slo_ns: client.definition.slo_ns,
                service_ns: pages.report().service_ns(),
                activity: activity(process),
                expected_ns: pages.report().expected_ns(),
                postponed: pages.report().is_postponed(),
                within_request: ledger.is_within_request(process.client, now),
            });
        }
        let mut before = std::mem::take(&mut self.shown);
        for (id, urgent) in self.order.update(now, &services) {
            before.remove(&id);
            self.shown.insert(id);
            if let Some(pages) = pages(processes, id) {
                pages.set_urgent(urgent);
            }
        }
        // The others are not latency-critical any more.
        for pages in before.into_iter().filter_map(|id| pages(processes, id)) {
            pages.set_urgent(UrgentWork::None);
        }
    }
}
