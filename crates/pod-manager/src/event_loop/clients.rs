//! The set of clients takes effect: clients are added, changed and removed.

use super::EventLoop;
use crate::agent_api::ClientSet;
use crate::clients::{ClientKey, Definition, Process};
use crate::message::Outdated;
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
        let (spec, memory) = (definition.spec, definition.memory);
        info!(client = %definition.key, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client added");
        let id = self.clients.add(definition, metrics);
        self.grants.ledger.set_client(id, spec, self.io.now());
    }

    fn change_client(&mut self, id: ClientId, definition: Definition) {
        let now = self.io.now();
        let changed = self.clients.get(id).filter(|client| client.definition != definition);
        let Some(class) = changed.map(|client| client.definition.spec.class) else { return };
        let (spec, memory) = (definition.spec, definition.memory);
        let class_changes = class != spec.class;
        if class_changes {
            self.grants.settle_client(id, &self.clients, &mut self.processes, now);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        info!(client = client.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client changed");
        client.definition = definition;
        self.clients.memory.set_limit(id, memory);
        self.grants.ledger.set_client(id, spec, now);
        if class_changes {
            self.change_class(id, spec.class);
        }
    }

    /// Schedules the processes of a client by its new class.
    fn change_class(&mut self, client: ClientId, class: Class) {
        let now = self.io.now();
        let becomes_critical = class == Class::LatencyCritical;
        let (scheduler, ledger) = (&mut self.channel_groups.scheduler, &mut self.grants.ledger);
        scheduler.set_class(client, class, ledger, now);
        let scheduled = |process: &Process| process.is_attached() || process.unhooked;
        for id in self.ids_of(client, scheduled) {
            let scheduler = &mut self.channel_groups.scheduler;
            if becomes_critical && !scheduler.is_observed(id) {
                let no_groups = (Vec::new(), &BTreeSet::new());
                scheduler.announce(id, (client, class), no_groups, &mut self.grants.ledger, now);
            }
            self.carry_out(vec![crate::effect::Effect::SchedulingChanged(id)]);
        }
        if becomes_critical {
            for id in self.ids_of(client, |process| process.is_attached() && process.pages.is_some()) {
                // Each of them was added when its token channel was opened.
                let _ = self.grants.ledger.request(id, now, GrantRequest::default());
            }
        }
    }

    fn ids_of(&self, client: ClientId, which: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
        self.processes.of_client(client).filter(|(_, process)| which(process)).map(|(id, _)| id).collect()
    }

    /// Ends a client's grants and closes its connections. What its processes hold is remembered until they end: it stays on the GPU
    /// until then.
    fn remove_client(&mut self, id: ClientId) {
        let now = self.io.now();
        self.grants.settle_client(id, &self.clients, &mut self.processes, now);
        let Some(client) = self.clients.mark_removed(id) else { return };
        info!(client = client.name, "client removed");
        let metrics = std::sync::Arc::clone(&client.metrics);
        self.io.metrics.remove(metrics);
        for process in self.processes.ids_of_client(id) {
            self.expel(process);
        }
        self.grants.ledger.remove_client(id, now);
        self.forget_client_if_removed(id);
    }

    /// Takes connections and grant from a process. It stays known if its end will be reported.
    fn expel(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        process.close_token_channel();
        let stays = process.pidfd.is_some() && process.key.is_some() && !process.unhooked;
        let connections: Vec<_> = process.connections().collect();
        for connection in connections {
            self.close_for_removal(connection);
        }
        self.release_groups(id);
        self.grants.ledger.process_gone(id, self.io.now());
        if !stays {
            self.forget_process(id, "disconnected");
        } else if let Some(process) = self.processes.get_mut(id) {
            (process.token, process.memory) = (None, None);
        }
    }

    /// Forgets a removed client once it has no process left.
    pub(super) fn forget_client_if_removed(&mut self, id: ClientId) {
        if self.clients.is_removed(id) && !self.processes.has_client(id) {
            self.clients.forget(id);
            self.channel_groups.forget_client(id);
        }
    }
}
