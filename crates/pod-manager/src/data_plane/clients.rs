//! The resource file takes effect: clients come, change and go.

use super::DataPlane;
use crate::reason::Reason;
use sluice_core::ledger::{Ask, Class};
use sluice_core::resources::{ClientEntry, Resources};
use sluice_core::{ClientId, ProcessId};
use tracing::{error, info};

impl DataPlane {
    /// Applies a resource file that is without mistakes: removed clients first, so that a name may come back as
    /// somebody else.
    pub(super) fn load(&mut self, resources: Resources) {
        let stays = |name: &str| resources.clients.iter().any(|entry| entry.name == name);
        let gone: Vec<ClientId> =
            self.clients.iter().filter(|(_, client)| !stays(&client.entry.name)).map(|(id, _)| id).collect();
        for client in gone {
            self.remove_client(client);
        }
        for entry in resources.clients {
            match self.clients.by_text(&entry.name) {
                Some(client) => self.change_client(client, entry),
                None => self.add_client(entry),
            }
        }
    }

    fn add_client(&mut self, entry: ClientEntry) {
        let metrics = match self.meters.add(&entry.name) {
            Ok(metrics) => metrics,
            Err(error) => return error!(client = entry.name, %error, "client without metrics is left out"),
        };
        let (spec, memory) = (entry.spec(), entry.memory);
        info!(client = entry.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "client");
        let id = self.clients.add(entry, metrics);
        self.tokens.set_client(id, spec, self.clock.now_ns());
        self.memory.set_limit(id, memory);
    }

    fn change_client(&mut self, id: ClientId, entry: ClientEntry) {
        let now = self.clock.now_ns();
        let Some(class) = self.clients.get(id).filter(|client| client.entry != entry).map(|c| c.entry.class)
        else {
            return;
        };
        if class != entry.class {
            self.settle_busy(id, now);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let (spec, memory) = (entry.spec(), entry.memory);
        info!(client = entry.name, request = %spec.request, limit = %spec.limit, memory, class = ?spec.class, "changed");
        let becomes_critical = spec.class == Class::LatencyCritical && class != spec.class;
        client.entry = entry;
        self.tokens.set_client(id, spec, now);
        self.memory.set_limit(id, memory);
        if becomes_critical {
            let attached = |(process, state): (&ProcessId, &crate::process::Process)| {
                (state.client == id && state.token.is_some() && state.pages.is_some()).then_some(*process)
            };
            let processes: Vec<ProcessId> = self.processes.iter().filter_map(attached).collect();
            for process in processes {
                // Every one of them was added when its token channel was opened.
                let _ = self.tokens.request(process, now, Ask::default());
            }
        }
    }

    /// What a client's processes report so far is settled, under the class that it had: from here on only what is added
    /// counts.
    fn settle_busy(&mut self, id: ClientId, now: u64) {
        let its = |(process, state): (&ProcessId, &crate::process::Process)| {
            (state.client == id).then_some(*process)
        };
        let processes: Vec<ProcessId> = self.processes.iter().filter_map(its).collect();
        for process in processes {
            self.charge_standing(process, now);
            if let Some(pages) = self.processes.get_mut(&process).and_then(|process| process.pages.as_mut()) {
                pages.busy_seen = (pages.report().busy_ns(), now);
            }
        }
    }

    fn remove_client(&mut self, id: ClientId) {
        let now = self.clock.now_ns();
        let processes: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.client == id)
            .map(|(process, _)| *process)
            .collect();
        for process in processes {
            let connections: Vec<u64> = self
                .processes
                .get(&process)
                .map(|process| process.connections().collect())
                .unwrap_or_default();
            for connection in connections {
                self.close(connection, &Reason::ClientRemoved);
            }
            self.forget_process(process, "closed");
        }
        self.tokens.remove_client(id, now);
        self.memory.remove_client(id);
        if let Some(client) = self.clients.remove(id) {
            info!(client = client.entry.name, "client removed");
            self.meters.remove(client.metrics);
        }
    }
}
