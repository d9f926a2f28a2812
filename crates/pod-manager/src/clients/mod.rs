//! The clients: what each was promised, what it has used, and by what its processes are recognised.

mod gpu_time;

pub(crate) use gpu_time::GpuTime;

use crate::definition::{ClientKey, Definition};
use crate::latencies::NewReport;
use crate::metrics::{ClientMetrics, RecentLatencies};
use crate::processes::Processes;
use crate::trace::Tracer;
use sluice_comm::Name;
use sluice_comm::page::ReportView;
use sluice_core::ledger::Class;
use sluice_core::memory::{MemoryLedger, ReserveResult};
use sluice_core::share::Share;
use sluice_core::{ClientId, ProcessId};
use sluice_hook_core::outcome::Bypass;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// One client.
pub(crate) struct Client {
    pub(crate) definition: Definition,
    /// For logs.
    pub(crate) name: String,
    pub(crate) metrics: Arc<ClientMetrics>,
    /// Time that granted requests had waited, nanoseconds.
    pub(crate) wait_ns: u64,
    /// Time for which it was delayed although it is latency-critical, as far as that was exported, nanoseconds.
    pub(crate) delayed_ns: u64,
    /// Time in which it held the GPU and executed nothing while another client waited, nanoseconds.
    pub(crate) hold_and_wait_ns: u64,
    /// GPU time that it used.
    pub(crate) gpu_time: GpuTime,
    /// Latencies of its last steps and requests.
    recent_steps: RecentLatencies,
    recent_requests: RecentLatencies,
    /// Calls around the gate by processes that have ended.
    pub(crate) bypasses: Bypasses,
    /// Whether another client waits while this one holds a grant.
    pub(crate) contended: bool,
    /// It is no client any more, but processes of it live on and hold memory.
    pub(crate) removed: bool,
}

/// All clients.
#[derive(Default)]
pub(crate) struct Clients {
    clients: BTreeMap<ClientId, Client>,
    /// Every name that a frame may carry: the whole one, and the short form that hooks use when it is long.
    by_name: HashMap<Name, ClientId>,
    by_uid: HashMap<String, ClientId>,
    last: u64,
    /// The memory that processes have reserved, and the clients' limits.
    pub(crate) memory: MemoryLedger,
}

impl Clients {
    /// The client with this name in the resource file.
    pub(crate) fn find_by_name(&self, name: &Name) -> Option<ClientId> {
        self.by_name.get(name).copied()
    }

    /// The client that is the pod with this uid.
    pub(crate) fn find_by_pod(&self, uid: &str) -> Option<ClientId> {
        self.by_uid.get(uid).copied()
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&client)
    }

    /// The client's name for logs.
    pub(crate) fn name(&self, client: ClientId) -> &str {
        self.clients.get(&client).map_or("removed client", |client| &client.name)
    }

    /// The name for logs of a client that may be unknown.
    pub(crate) fn name_or_removed(&self, client: Option<ClientId>) -> &str {
        client.map_or("removed client", |client| self.name(client))
    }

    pub(crate) fn class(&self, client: ClientId) -> Option<Class> {
        self.clients.get(&client).map(|client| client.definition.spec.class)
    }

    pub(crate) fn is_critical(&self, client: ClientId) -> bool {
        self.class(client) == Some(Class::LatencyCritical)
    }

    pub(crate) fn is_removed(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, client))
    }

    /// All clients that were not removed, by key.
    pub(crate) fn present(&self) -> HashMap<ClientKey, ClientId> {
        let present = self.clients.iter().filter(|(_, client)| !client.removed);
        present.map(|(id, client)| (client.definition.key.clone(), *id)).collect()
    }

    /// The uids of the pods that are clients.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &String> {
        self.by_uid.keys()
    }

    /// Whether this pod was a client and processes of it live on.
    pub(crate) fn was_removed(&self, uid: &str) -> bool {
        self.clients.values().any(|client| client.removed && client.definition.key.pod_uid() == Some(uid))
    }

    pub(crate) fn add(
        &mut self,
        definition: Definition,
        metrics: Arc<ClientMetrics>,
        gpu_time: GpuTime,
    ) -> ClientId {
        self.last += 1;
        let id = ClientId(self.last);
        match &definition.key {
            ClientKey::Named(name) => {
                self.by_name.extend(Name::new(name).ok().map(|name| (name, id)));
                self.by_name.entry(Name::shortened(name)).or_insert(id);
            }
            ClientKey::Pod { uid, .. } => {
                self.by_uid.insert(uid.clone(), id);
            }
        }
        self.memory.set_limit(id, definition.memory);
        let client = Client {
            name: definition.key.to_string(),
            definition,
            metrics,
            wait_ns: 0,
            delayed_ns: 0,
            hold_and_wait_ns: 0,
            gpu_time,
            recent_steps: RecentLatencies::default(),
            recent_requests: RecentLatencies::default(),
            bypasses: Bypasses::default(),
            contended: false,
            removed: false,
        };
        self.clients.insert(id, client);
        id
    }

    /// Marks a client as removed: no process is recognised as its own from here on, and it may reserve no more memory.
    pub(crate) fn mark_removed(&mut self, client: ClientId) -> Option<&mut Client> {
        self.by_name.retain(|_, id| *id != client);
        self.by_uid.retain(|_, id| *id != client);
        self.memory.set_limit(client, 0);
        let client = self.clients.get_mut(&client)?;
        client.removed = true;
        Some(client)
    }

    /// Reserves memory for a process of a client, or releases some. Returns whether it was granted.
    pub(crate) fn update_memory(
        &mut self,
        id: ProcessId,
        client: Option<ClientId>,
        bytes: u64,
        allocate: bool,
    ) -> bool {
        if !allocate {
            let released = self.memory.release(id, bytes);
            if released < bytes {
                debug!(process = ?id, bytes, released, "process released more memory than it holds");
            }
            return true;
        }
        let granted = self.memory.reserve(id, bytes) == ReserveResult::Granted;
        if !granted {
            self.count_denied(client, bytes);
        }
        granted
    }

    /// Counts a reservation that is refused.
    pub(crate) fn count_denied(&self, client: Option<ClientId>, bytes: u64) {
        if let Some(client) = client.and_then(|client| self.get(client)) {
            client.metrics.memory.denied.inc();
            debug!(client = client.name, bytes, "memory denied");
        }
    }

    /// Updates the gauges of promises, of memory and of connected processes.
    pub(crate) fn refresh_gauges(&self, processes: &Processes) {
        for (id, client) in &self.clients {
            let account = self.memory.client(*id).unwrap_or_default();
            let connected =
                processes.of_client(*id).filter(|(_, process)| process.connections().next().is_some());
            let promised = |share: Share| if client.removed { 0.0 } else { share.as_fraction() };
            client.metrics.grants.quota.set(promised(client.definition.spec.request));
            client.metrics.grants.limit.set(promised(client.definition.spec.limit));
            client.metrics.memory.used.set(gauge(account.used));
            client.metrics.memory.overhead.set(gauge(account.overhead));
            client.metrics.memory.limit.set(gauge(account.limit));
            client.metrics.processes.set(gauge(connected.count() as u64));
            client.metrics.stopped.set(i64::from(processes.stopped_processes(*id)));
            client.metrics.unhooked.set(gauge(processes.scheduled_unhooked(*id) as u64));
            for (series, count) in client.metrics.unscheduled.iter().zip(processes.unscheduled(*id)) {
                series.set(i64::from(count));
            }
            self.refresh_slices(*id, client, processes);
        }
    }

    /// Reads the latencies that processes report, and exports them.
    pub(crate) fn refresh_latencies(&mut self, processes: &mut Processes, trace: &mut Tracer, now: u64) {
        for (id, client) in &mut self.clients {
            let (mut linger_ns, mut errors_ns) = (0, [0, 0]);
            for process in processes.ids_of_client(*id) {
                let pages = processes.get_mut(process).and_then(|process| process.endpoint.pages.as_mut());
                if let Some(pages) = pages {
                    client.count_latencies(process, &pages.read_latencies(now), trace, now);
                    linger_ns = linger_ns.max(pages.report().linger_ns());
                    let reported = pages.report().prediction_errors_ns();
                    errors_ns = [0, 1].map(|what| reported[what].max(errors_ns[what]));
                }
            }
            client.recent_steps.advance(now);
            client.recent_requests.advance(now);
            let (series, definition) = (&client.metrics.latencies, &client.definition);
            series.steps.set_quantiles(&client.recent_steps);
            series.requests.set_quantiles(&client.recent_requests);
            series.set_client(definition.spec.class == Class::LatencyCritical, definition.slo_ns);
            series.set_linger(linger_ns);
            series.set_prediction_errors(errors_ns);
        }
    }

    /// Counts the latency-critical processes of a client by the slices that they want, and shows the figures of one that was tested.
    fn refresh_slices(&self, id: ClientId, client: &Client, processes: &Processes) {
        let (mut wanted, mut medians_ns) = ([0, 0], (0, 0));
        for pages in processes.of_client(id).filter_map(|(_, process)| process.endpoint.pages.as_ref()) {
            if self.is_critical(id) && pages.reports_activity() {
                wanted[usize::from(pages.report().wants_default_slices())] += 1;
                medians_ns = medians_ns.max(pages.report().burst_medians_ns());
            }
        }
        let series = &client.metrics.slices;
        series.wanted.iter().zip(wanted).for_each(|(series, count)| series.set(count));
        for (series, ns) in series.burst_seconds.iter().zip([medians_ns.0, medians_ns.1]) {
            series.set(Duration::from_nanos(ns).as_secs_f64());
        }
    }

    /// Forgets a removed client whose last process has ended.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.memory.remove_client(client);
    }
}

impl Client {
    /// Counts what one of its processes reports about steps and requests. Only those of a latency-critical client count.
    pub(crate) fn count_latencies(
        &mut self,
        process: ProcessId,
        report: &NewReport,
        trace: &mut Tracer,
        now: u64,
    ) {
        if self.definition.spec.class != Class::LatencyCritical {
            return;
        }
        if let Some(recording) = trace.recording() {
            recording.requests(process, report.requests.as_ref(), now);
        }
        let series = &self.metrics.latencies;
        let kinds = [
            (&series.steps, &mut self.recent_steps, &report.steps),
            (&series.requests, &mut self.recent_requests, &report.requests),
        ];
        for (family, recent, new) in kinds {
            recent.advance(now);
            if let Some(new) = new {
                family.add(new);
                recent.add(new);
            }
        }
        series.slo_violations.inc_by(report.slo_violations);
        series.unobserved_steps.inc_by(report.unobserved_steps);
    }
}

/// Calls around the launch gate, as the processes of a client report them: counts by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bypasses([u64; Bypass::ALL.len()]);

impl Bypasses {
    /// Adds what a process has reported.
    pub(crate) fn add(&mut self, report: ReportView<'_>) {
        for (sum, reason) in self.0.iter_mut().zip(Bypass::ALL) {
            // A process can write any number there.
            *sum = sum.saturating_add(report.bypassed(reason.index()));
        }
    }

    /// The counts by reason, without those that are zero.
    pub(crate) fn by_label(&self) -> HashMap<String, u64> {
        let some = Bypass::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        some.map(|(reason, count)| (reason.label().to_owned(), count)).collect()
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
