//! Connections on which frames have arrived, in the order in which they are read: the clients take turns, whatever number of connections
//! each of them has.

use super::ConnectionId;
use sluice_core::ClientId;
use std::collections::{HashMap, HashSet, VecDeque};

/// Connections of one kind. A client's connections take turns among themselves, too. Those without a client count as one client's.
#[derive(Debug, Default)]
pub(crate) struct ReadyConnections {
    /// The clients with ready connections; the first is next.
    clients: VecDeque<Option<ClientId>>,
    of_client: HashMap<Option<ClientId>, VecDeque<ConnectionId>>,
    queued: HashSet<ConnectionId>,
}

impl ReadyConnections {
    /// Adds a connection of a client behind its others. One that is queued already keeps its place.
    pub(crate) fn add(&mut self, id: ConnectionId, client: Option<ClientId>) {
        if !self.queued.insert(id) {
            return;
        }
        let connections = self.of_client.entry(client).or_default();
        if connections.is_empty() {
            self.clients.push_back(client);
        }
        connections.push_back(id);
    }

    /// Takes the connection whose turn it is.
    pub(crate) fn next(&mut self) -> Option<ConnectionId> {
        let client = self.clients.pop_front()?;
        let connections = self.of_client.get_mut(&client)?;
        let id = connections.pop_front()?;
        if connections.is_empty() {
            self.of_client.remove(&client);
        } else {
            self.clients.push_back(client);
        }
        self.queued.remove(&id);
        Some(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<ClientId> = Some(ClientId(1));
    const B: Option<ClientId> = Some(ClientId(2));

    fn drain(ready: &mut ReadyConnections) -> Vec<u64> {
        std::iter::from_fn(|| ready.next()).map(|id| id.0).collect()
    }

    #[test]
    fn clients_take_turns_whatever_number_of_connections_they_have() {
        let mut ready = ReadyConnections::default();
        (1..=5).for_each(|id| ready.add(ConnectionId(id), A));
        ready.add(ConnectionId(11), B);
        ready.add(ConnectionId(12), B);
        ready.add(ConnectionId(21), None);
        assert_eq!(drain(&mut ready), [1, 11, 21, 2, 12, 3, 4, 5]);
        assert!(ready.is_empty());
    }

    #[test]
    fn queued_connection_is_taken_once_and_a_later_one_of_its_client_follows() {
        let mut ready = ReadyConnections::default();
        ready.add(ConnectionId(1), A);
        ready.add(ConnectionId(1), A);
        ready.add(ConnectionId(2), A);
        assert_eq!(ready.next(), Some(ConnectionId(1)));
        ready.add(ConnectionId(1), A);
        assert_eq!(drain(&mut ready), [2, 1]);
    }
}
