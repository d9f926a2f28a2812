//! Clients are added, changed and removed, and processes end.

use super::EventLoop;
use crate::client_set::{ClientSet, Outdated};
use crate::clients::GpuTime;
use crate::definition::{ClientKey, Definition};
use crate::party::Party;
use crate::processes::Event;
use sluice_core::processes::ClientFacts;
use sluice_core::{ClientId, ProcessId};
use std::collections::HashSet;
use tracing::{error, info};

impl EventLoop {
    /// Applies a set of the node agent's, unless a later one of the same agent is in force.
    pub(super) fn set_clients(&mut self, set: ClientSet) -> Result<(), Outdated> {
        let clients = self.agent_api.accept(set)?;
        self.load(clients);
        self.attach_pending();
        Ok(())
    }

    /// Applies valid definitions: removed clients first, so that a name may come back as another client.
    pub(super) fn load(&mut self, definitions: Vec<Definition>) {
        let kept: HashSet<&ClientKey> = definitions.iter().map(|definition| &definition.key).collect();
        let mut present = self.clients.present();
        let removed: Vec<ClientId> =
            present.iter().filter(|(key, _)| !kept.contains(key)).map(|(_, id)| *id).collect();
        for client in removed {
            self.remove_client(client);
        }
        for definition in definitions {
            match present.remove(&definition.key) {
                Some(client) => self.change_client(client, definition),
                None => self.add_client(definition),
            }
        }
    }

    fn add_client(&mut self, definition: Definition) {
        let metrics = match self.io.metrics.add(&definition.key) {
            Ok(metrics) => metrics,
            Err(error) => {
                return error!(client = %definition.key, %error, "client is ignored: its metrics cannot be created");
            }
        };
        let (spec, memory, is_pod) = (definition.spec, definition.memory, definition.key.pod_uid().is_some());
        info!(client = %definition.key, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client added");
        let now = self.io.now();
        let gpu_time = GpuTime::new(self.grants.window_ns, now);
        let suspended = definition.suspended;
        let id = self.clients.add(definition, metrics, gpu_time);
        self.grants.ledger.set_client(id, spec, now);
        self.suspend(id, suspended);
        self.apply(Event::ClientChanged(id, ClientFacts { spec, is_pod }));
    }

    fn change_client(&mut self, id: ClientId, definition: Definition) {
        let now = self.io.now();
        let changed = self.clients.get(id).filter(|client| client.definition != definition);
        let Some(class) = changed.map(|client| client.definition.spec.class) else { return };
        let (spec, memory, is_pod) = (definition.spec, definition.memory, definition.key.pod_uid().is_some());
        if class != spec.class {
            self.grants.settle_client(id, &mut self.clients, &mut self.processes, &mut self.io.trace, now);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        info!(client = client.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, suspended = definition.suspended, "client changed");
        let suspended = definition.suspended;
        client.definition = definition;
        self.show_slo(id);
        self.clients.memory.set_limit(id, memory);
        self.grants.ledger.set_client(id, spec, now);
        self.suspend(id, suspended);
        self.apply(Event::ClientChanged(id, ClientFacts { spec, is_pod }));
    }

    fn suspend(&mut self, id: ClientId, suspended: bool) {
        let Self { suspensions, clients, processes, grants, io, .. } = self;
        suspensions.set(id, suspended, clients, processes, &mut grants.ledger, io);
    }

    /// Shows the processes of a client its latency goal.
    pub(super) fn show_slo(&self, id: ClientId) {
        let slo_ns = self.clients.get(id).map_or(0, |client| client.definition.slo_ns);
        for pages in self.processes.of_client(id).filter_map(|(_, process)| process.endpoint.pages.as_ref()) {
            pages.grant().set_slo(slo_ns);
        }
    }

    /// Ends a client's grants and closes its connections. What its processes hold is remembered until they end: it stays on the GPU
    /// until then.
    fn remove_client(&mut self, id: ClientId) {
        let now = self.io.now();
        self.grants.settle_client(id, &mut self.clients, &mut self.processes, &mut self.io.trace, now);
        let Some(client) = self.clients.mark_removed(id) else { return };
        info!(client = client.name, "client removed");
        let metrics = std::sync::Arc::clone(&client.metrics);
        self.io.metrics.remove(metrics);
        self.suspensions.forget(id);
        let processes = self.processes.ids_of_client(id);
        processes.iter().for_each(|process| self.close_connections(*process));
        self.apply(Event::ClientRemoved(id));
        processes.into_iter().for_each(|process| self.expel(process));
        self.grants.ledger.remove_client(id, now);
        self.forget_client_if_removed(id);
    }

    /// Closes the connections of a process whose client was removed, and ends what its pages show.
    fn close_connections(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        process.endpoint.close_token_channel();
        for connection in process.connections() {
            self.close_for_removal(connection);
        }
    }

    /// Forgets a process whose client was removed, unless its end will be reported.
    fn expel(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        if process.endpoint.pidfd.is_some() && process.key.is_some() && !process.state.is_unhooked() {
            (process.token, process.memory) = (None, None);
        } else {
            self.forget_process(id, "disconnected");
        }
    }

    /// Forgets a removed client once it has no process left.
    pub(super) fn forget_client_if_removed(&mut self, id: ClientId) {
        if self.clients.is_removed(id) && !self.processes.has_client(id) {
            self.clients.forget(id);
            self.processes.forget_client(id);
        }
    }

    /// Ends the grant that a process's pages show, and keeps what they report.
    pub(super) fn retire_pages(&mut self, id: ProcessId) {
        let now = self.io.now();
        self.grants.read_usage(id, &mut self.clients, &mut self.processes, &mut self.io.trace, now);
        let Some(process) = self.processes.get_mut(id) else { return };
        let Some(mut pages) = process.endpoint.pages.take() else { return };
        pages.close();
        if let Some(client) = self.clients.get_mut(process.client) {
            client.count_latencies(id, &pages.read_latencies(now), &mut self.io.trace, now);
            client.bypasses.add(pages.report());
        }
    }

    /// The pidfd reports that a process has ended; a child of it may still hold its sockets.
    pub(super) fn process_ended(&mut self, id: ProcessId) {
        let departed = self.departed.take(id, &self.io);
        for id in departed.into_iter().filter(|departed| *departed != id).chain([id]) {
            self.apply(Event::Ended(id));
        }
        self.forget_process(id, "ended");
    }

    /// Forgets a process: its grant and its memory go back at once, its connections are closed.
    pub(super) fn forget_process(&mut self, id: ProcessId, how: &str) {
        let now = self.io.now();
        self.retire_pages(id);
        let Some(mut process) = self.processes.remove(id, &mut self.grants.ledger, now) else { return };
        let bytes = self.clients.memory.process_gone(id);
        process.endpoint.ignore_wakeups(&self.io);
        for connection in process.connections() {
            if let Some(connection) = self.connections.take(connection, &self.io) {
                self.io.closer.close(connection);
            }
        }
        let client = process.client;
        if let Some(dropped) = self.io.may_log("ended", Party::Client(client)) {
            let client = self.clients.name(client);
            info!(client, peer = %process.endpoint.label, bytes, dropped, "process {how}, its memory is released");
        }
        if let Some(pidfd) = process.endpoint.pidfd.take() {
            if process.state.is_unhooked() {
                // Its groups are released by controls, whether it has ended or not. Its pidfd would report its end again.
                self.io.poller.remove(&pidfd);
            } else {
                let has_groups = self.processes.has_groups_of(id);
                self.departed.add(id, process.key, pidfd, has_groups, &self.io);
            }
        }
        self.forget_client_if_removed(client);
    }

    /// Waits for the end of a departed process no longer, unless it has groups.
    pub(super) fn settle_departure(&mut self, id: ProcessId) {
        if !self.processes.has_groups_of(id) {
            self.departed.forget(id, &self.io);
        }
    }
}
