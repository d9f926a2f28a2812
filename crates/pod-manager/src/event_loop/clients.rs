//! Clients are added, changed and removed, and processes end.

use super::EventLoop;
use crate::agent_api::ClientSet;
use crate::clients::GpuTime;
use crate::clients::{ClientKey, Definition, Process};
use crate::message::Outdated;
use crate::party::Party;
use crate::shared::Shared;
use sluice_core::ledger::{Class, GrantRequest};
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeSet, HashSet};
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
        let mut present = self.shared.clients.present();
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
        let metrics = match self.shared.io.metrics.add(&definition.key) {
            Ok(metrics) => metrics,
            Err(error) => {
                return error!(client = %definition.key, %error, "client is ignored: its metrics cannot be created");
            }
        };
        let (spec, memory) = (definition.spec, definition.memory);
        info!(client = %definition.key, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client added");
        let now = self.shared.io.now();
        let gpu_time = GpuTime::new(self.shared.grants.window_ns, now);
        let id = self.shared.clients.add(definition, metrics, gpu_time);
        self.shared.grants.ledger.set_client(id, spec, now);
    }

    fn change_client(&mut self, id: ClientId, definition: Definition) {
        let now = self.shared.io.now();
        let changed = self.shared.clients.get(id).filter(|client| client.definition != definition);
        let Some(class) = changed.map(|client| client.definition.spec.class) else { return };
        let (spec, memory) = (definition.spec, definition.memory);
        let class_changes = class != spec.class;
        if class_changes {
            self.shared.settle_client(id);
        }
        let Some(client) = self.shared.clients.get_mut(id) else { return };
        info!(client = client.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client changed");
        client.definition = definition;
        self.shared.clients.memory.set_limit(id, memory);
        self.shared.grants.ledger.set_client(id, spec, now);
        if class_changes {
            self.change_class(id, spec.class);
        }
    }

    /// Schedules the processes of a client by its new class.
    fn change_class(&mut self, client: ClientId, class: Class) {
        let now = self.shared.io.now();
        let becomes_critical = class.is_latency_critical();
        let (scheduler, ledger) = (&mut self.channel_groups.scheduler, &mut self.shared.grants.ledger);
        scheduler.set_class(client, class, ledger, now);
        // Peers of the old protocol have no pages. Their grants end by timer, whatever the class.
        let scheduled =
            |process: &Process| process.is_attached() && process.pages.is_some() || process.unhooked;
        for id in self.ids_of(client, scheduled) {
            let (scheduler, ledger) = (&mut self.channel_groups.scheduler, &mut self.shared.grants.ledger);
            if becomes_critical && !scheduler.is_observed(id) {
                scheduler.announce(id, (client, class), (Vec::new(), &BTreeSet::new()), ledger, now);
            }
            self.show_scheduling(id);
        }
        if becomes_critical {
            for id in self.ids_of(client, |process| process.is_attached() && process.pages.is_some()) {
                // Each of them was added when its token channel was opened.
                let _ = self.shared.grants.ledger.request(id, now, GrantRequest::default());
            }
        }
    }

    fn ids_of(&self, client: ClientId, which: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
        self.shared
            .processes
            .of_client(client)
            .filter(|(_, process)| which(process))
            .map(|(id, _)| id)
            .collect()
    }

    /// Ends a client's grants and closes its connections. What its processes hold is remembered until they end: it stays on the GPU
    /// until then.
    fn remove_client(&mut self, id: ClientId) {
        let now = self.shared.io.now();
        self.shared.settle_client(id);
        let Some(client) = self.shared.clients.mark_removed(id) else { return };
        info!(client = client.name, "client removed");
        let metrics = std::sync::Arc::clone(&client.metrics);
        self.shared.io.metrics.remove(metrics);
        for process in self.shared.processes.ids_of_client(id) {
            self.expel(process);
        }
        self.shared.grants.ledger.remove_client(id, now);
        self.forget_client_if_removed(id);
    }

    /// Takes connections and grant from a process. It stays known if its end will be reported.
    fn expel(&mut self, id: ProcessId) {
        let Some(process) = self.shared.processes.get_mut(id) else { return };
        process.close_token_channel();
        let stays = process.pidfd.is_some() && process.key.is_some() && !process.unhooked;
        for connection in process.connections() {
            self.close_for_removal(connection);
        }
        self.consequences.forget_process(id);
        self.channel_groups.release(id, &mut self.shared);
        self.stream_gates.process_changed(id);
        self.shared.grants.ledger.process_gone(id, self.shared.io.now());
        if !stays {
            self.forget_process(id, "disconnected");
        } else if let Some(process) = self.shared.processes.get_mut(id) {
            (process.token, process.memory) = (None, None);
        }
    }

    /// Forgets a removed client once it has no process left.
    pub(super) fn forget_client_if_removed(&mut self, id: ClientId) {
        if self.shared.clients.is_removed(id) && !self.shared.processes.has_client(id) {
            self.shared.clients.forget(id);
            self.channel_groups.forget_client(id);
            self.consequences.forget_client(id);
        }
    }

    /// The pidfd reports that a process has ended; a child of it may still hold its sockets.
    pub(super) fn process_ended(&mut self, id: ProcessId) {
        // A file that was found from outside may be another living process's too: groups disabled through it are enabled again.
        let has_own_file = self.shared.processes.get(id).is_none_or(|process| !process.unhooked);
        let departed = self.shared.processes.take_departed(id, &self.shared.io);
        for id in departed.into_iter().filter(|departed| *departed != id).chain(has_own_file.then_some(id)) {
            let effects = self.channel_groups.forget_process(id);
            self.carry_out(effects);
        }
        let key = self.shared.processes.get(id).and_then(|process| process.key);
        key.into_iter().for_each(|key| self.unhooked.forget_process(key));
        self.forget_process(id, "ended");
    }

    /// Forgets a process: its grant and its memory go back at once, its connections are closed.
    pub(super) fn forget_process(&mut self, id: ProcessId, how: &str) {
        let now = self.shared.io.now();
        self.shared.read_usage(id);
        let Some(mut process) = self.shared.processes.remove(id) else { return };
        self.consequences.forget_process(id);
        self.channel_groups.release(id, &mut self.shared);
        self.stream_gates.forget(id);
        self.shared.grants.ledger.process_gone(id, now);
        let bytes = self.shared.clients.memory.process_gone(id);
        if let Some(pages) = &mut process.pages {
            pages.close();
        }
        process.ignore_wakeups(&self.shared.io);
        for connection in process.connections() {
            if let Some(connection) = self.connections.take(connection, &self.shared.io) {
                self.shared.io.closer.close(connection);
            }
        }
        let client = process.client;
        if let (Some(client), Some(pages)) = (self.shared.clients.get_mut(client), &process.pages) {
            client.bypasses.add(pages.report());
        }
        let Shared { clients, io, .. } = &mut self.shared;
        if let Some(dropped) = io.may_log("ended", Party::Client(client)) {
            let client = clients.name(client);
            info!(client, peer = %process.label, bytes, dropped, "process {how}, its memory is released");
        }
        if process.unhooked {
            // Its groups are released by controls, whether it has ended or not. Its pidfd would report its end again.
            process.pidfd.take().inspect(|pidfd| self.shared.io.poller.remove(pidfd));
        }
        let has_groups = self.channel_groups.has_groups(id);
        self.shared.processes.wait_for_end(id, process, has_groups, &self.shared.io);
        self.forget_client_if_removed(client);
    }

    /// Waits for the end of a departed process no longer, unless it has groups.
    pub(super) fn settle_departure(&mut self, id: ProcessId) {
        if !self.channel_groups.has_groups(id) {
            self.shared.processes.forget_departed(id, &self.shared.io);
        }
    }
}
