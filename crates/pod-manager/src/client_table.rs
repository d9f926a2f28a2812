//! The clients of the resource file by name and by number.

use crate::metrics::ClientMetrics;
use sluice_comm::Name;
use sluice_core::ClientId;
use sluice_core::resources::ClientEntry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) entry: ClientEntry,
    pub(crate) metrics: Arc<ClientMetrics>,
    /// Whether another client waits while it holds the token.
    pub(crate) contended: bool,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    clients: BTreeMap<ClientId, Client>,
    /// Every name that a frame may carry: the whole one, and the short form that hooks use when it is long.
    by_name: HashMap<Name, ClientId>,
    last: u64,
}

impl ClientTable {
    pub(crate) fn find(&self, name: &Name) -> Option<ClientId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&client)
    }

    pub(crate) fn name(&self, client: ClientId) -> &str {
        self.clients.get(&client).map_or("removed client", |client| &client.entry.name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, client))
    }

    pub(crate) fn by_text(&self, name: &str) -> Option<ClientId> {
        self.clients.iter().find(|(_, client)| client.entry.name == name).map(|(id, _)| *id)
    }

    pub(crate) fn add(&mut self, entry: ClientEntry, metrics: Arc<ClientMetrics>) -> ClientId {
        self.last += 1;
        let id = ClientId(self.last);
        self.by_name.extend(Name::new(&entry.name).ok().map(|name| (name, id)));
        self.by_name.entry(Name::shortened(&entry.name)).or_insert(id);
        self.clients.insert(id, Client { entry, metrics, contended: false });
        id
    }

    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Client> {
        self.by_name.retain(|_, id| *id != client);
        self.clients.remove(&client)
    }
}
