//! Who the clients are takes effect: they come, change and go.

use super::DataPlane;
use crate::agent::ClientSet;
use crate::control::Outdated;
use crate::definition::{Definition, Who};
use crate::process::Process;
use crate::reason::Reason;
use sluice_core::ledger::{Ask, Class};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;
use std::collections::HashSet;
use tracing::{error, info};

/// Which set of the node agent's is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) agent_instance: String,
    pub(super) generation: u64,
}

impl DataPlane {
    /// Applies a set of the node agent's, unless a later one of the same agent is in force.
    pub(super) fn set_clients(&mut self, set: ClientSet) -> Result<(), Outdated> {
        let ClientSet { generation, agent_instance, clients } = set;
        if agent_instance == self.in_force.agent_instance && generation < self.in_force.generation {
            return Err(Outdated { in_force: self.in_force.generation });
        }
        let count = clients.len();
        info!(generation, agent_instance, clients = count, "the node agent's clients");
        self.in_force = InForce { agent_instance, generation };
        self.load(clients);
        self.admit_held();
        Ok(())
    }

    /// Applies definitions that are without mistakes: removed clients first, so that a name may come back as somebody
    /// else.
    pub(super) fn load(&mut self, definitions: Vec<Definition>) {
        let stay: HashSet<&Who> = definitions.iter().map(|definition| &definition.who).collect();
        let mut present = self.clients.present();
        let gone: Vec<ClientId> =
            present.iter().filter(|(who, _)| !stay.contains(who)).map(|(_, id)| *id).collect();
        for client in gone {
            self.remove_client(client);
        }
        for definition in definitions {
            match present.remove(&definition.who) {
                Some(client) => self.change_client(client, definition),
                None => self.add_client(definition),
            }
        }
    }

    fn add_client(&mut self, definition: Definition) {
        let metrics = match self.meters.add(&definition.who) {
            Ok(metrics) => metrics,
            Err(error) => {
                return error!(client = %definition.who, %error, "client without metrics is left out");
            }
        };
        let (spec, memory) = (definition.spec, definition.memory);
        info!(client = %definition.who, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client");
        let id = self.clients.add(definition, metrics);
        self.tokens.set_client(id, spec, self.clock.now_ns());
        self.memory.set_limit(id, memory);
    }

    fn change_client(&mut self, id: ClientId, definition: Definition) {
        let now = self.clock.now_ns();
        let changed = self.clients.get(id).filter(|client| client.definition != definition);
        let Some(class) = changed.map(|client| client.definition.spec.class) else { return };
        if class != definition.spec.class {
            self.settle_busy(id, now);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let (spec, memory) = (definition.spec, definition.memory);
        info!(client = client.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "changed");
        let becomes_critical = spec.class == Class::LatencyCritical && class != spec.class;
        client.definition = definition;
        self.tokens.set_client(id, spec, now);
        if class != spec.class {
            self.helm.steering.set_class(id, spec.class, &mut self.tokens, now);
            for process in self.processes_of(id, |process| process.token.is_some() || process.adopted) {
                if becomes_critical && !self.helm.steering.watches(process) {
                    self.helm.steering.announce(
                        process,
                        (id, spec.class),
                        (Vec::new(), &BTreeSet::new()),
                        &mut self.tokens,
                        now,
                    );
                }
                self.follow(process);
            }
        }
        self.memory.set_limit(id, memory);
        if becomes_critical {
            let attached = |state: &Process| state.token.is_some() && state.pages.is_some();
            for process in self.processes_of(id, attached) {
                // Every one of them was added when its token channel was opened.
                let _ = self.tokens.request(process, now, Ask::default());
            }
        }
    }

    /// What a client's processes report so far is settled, under the class that it had: from here on only what is added
    /// counts.
    fn settle_busy(&mut self, id: ClientId, now: u64) {
        for process in self.processes_of(id, |_| true) {
            self.charge_standing(process, now);
            if let Some(pages) = self.processes.get_mut(&process).and_then(|process| process.pages.as_mut()) {
                pages.busy_seen = (pages.report().busy_ns(), now);
            }
        }
    }

    /// Its grants end and its connections are closed. What its processes hold is remembered until they end: it lies on
    /// the GPU whatever anybody says.
    fn remove_client(&mut self, id: ClientId) {
        self.settle_busy(id, self.clock.now_ns());
        let Some(client) = self.clients.leave_out(id) else { return };
        info!(client = client.name, "client removed");
        let metrics = std::sync::Arc::clone(&client.metrics);
        self.meters.remove(metrics);
        for process in self.processes_of(id, |_| true) {
            self.expel(process);
        }
        self.tokens.remove_client(id, self.clock.now_ns());
        self.memory.set_limit(id, 0);
        self.forget_client_if_left_out(id);
    }

    /// Takes connections and grant from a process; one whose end will be noticed stays known until then.
    fn expel(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let connections: Vec<u64> = process.connections().collect();
        process.close_token_channel();
        let stays = process.pidfd.is_some() && process.key.is_some() && !process.adopted;
        for connection in connections {
            self.close_for_removal(connection, &Reason::ClientRemoved);
        }
        self.unsteer(id);
        self.tokens.process_gone(id, self.clock.now_ns());
        if stays {
            if let Some(process) = self.processes.get_mut(&id) {
                (process.token, process.memory) = (None, None);
            }
        } else {
            self.forget_process(id, "closed");
        }
    }

    /// Forgets a client that was removed once no process of it is left.
    pub(super) fn forget_client_if_left_out(&mut self, id: ClientId) {
        let left_out = self.clients.get(id).is_some_and(|client| client.left_out);
        if left_out && self.processes_of(id, |_| true).is_empty() {
            self.clients.remove(id);
            self.helm.forget_client(id);
            self.memory.remove_client(id);
        }
    }

    fn processes_of(&self, id: ClientId, which: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
        let its = self.processes.iter().filter(|(_, process)| process.client == id && which(process));
        its.map(|(process, _)| *process).collect()
    }
}
