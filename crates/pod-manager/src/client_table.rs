//! The clients by what they are recognised by and by number.

use crate::definition::{Definition, Who};
use crate::identity::Identity;
use crate::metrics::ClientMetrics;
use crate::tally::Tally;
use sluice_comm::Name;
use sluice_core::ClientId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) definition: Definition,
    /// For logs.
    pub(crate) name: String,
    pub(crate) metrics: Arc<ClientMetrics>,
    /// What it has had, beside what the ledgers know.
    pub(crate) tally: Tally,
    /// Whether another client waits while it holds the token.
    pub(crate) contended: bool,
    /// It is no client any more, but processes of it live on and hold memory.
    pub(crate) left_out: bool,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    clients: BTreeMap<ClientId, Client>,
    /// Every name that a frame may carry: the whole one, and the short form that hooks use when it is long.
    by_name: HashMap<Name, ClientId>,
    by_uid: HashMap<String, ClientId>,
    last: u64,
}

impl ClientTable {
    pub(crate) fn find(&self, identity: &Identity) -> Option<ClientId> {
        match identity {
            Identity::Named(name) => self.by_name.get(name).copied(),
            Identity::Pod(pod) => self.by_uid.get(&pod.uid).copied(),
        }
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&client)
    }

    pub(crate) fn name(&self, client: ClientId) -> &str {
        self.clients.get(&client).map_or("removed client", |client| &client.name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, client))
    }

    /// Those that are clients still, by who they are.
    pub(crate) fn present(&self) -> HashMap<Who, ClientId> {
        let present = self.clients.iter().filter(|(_, client)| !client.left_out);
        present.map(|(id, client)| (client.definition.who.clone(), *id)).collect()
    }

    pub(crate) fn has_pod(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Whether this pod was a client until its processes' last moments.
    pub(crate) fn was_left_out(&self, uid: &str) -> bool {
        let is = |client: &Client| matches!(&client.definition.who, Who::Pod { uid: its, .. } if its == uid);
        self.clients.values().any(|client| client.left_out && is(client))
    }

    pub(crate) fn add(&mut self, definition: Definition, metrics: Arc<ClientMetrics>) -> ClientId {
        self.last += 1;
        let id = ClientId(self.last);
        match &definition.who {
            Who::Named(name) => {
                self.by_name.extend(Name::new(name).ok().map(|name| (name, id)));
                self.by_name.entry(Name::shortened(name)).or_insert(id);
            }
            Who::Pod { uid, .. } => {
                self.by_uid.insert(uid.clone(), id);
            }
        }
        let name = definition.who.to_string();
        let tally = Tally::default();
        self.clients
            .insert(id, Client { definition, name, metrics, tally, contended: false, left_out: false });
        id
    }

    /// Nobody is recognised as this client any more.
    pub(crate) fn leave_out(&mut self, client: ClientId) -> Option<&mut Client> {
        self.by_name.retain(|_, id| *id != client);
        self.by_uid.retain(|_, id| *id != client);
        let client = self.clients.get_mut(&client)?;
        client.left_out = true;
        Some(client)
    }

    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Client> {
        self.leave_out(client)?;
        self.clients.remove(&client)
    }
}
