//! Connections on which frames have arrived, in the order in which they are read: the parties take turns, whatever number of connections
//! each of them has.

use crate::party::Party;
use sluice_core::ConnectionId;
use std::collections::{HashMap, HashSet, VecDeque};

/// Connections of one kind. A party's connections take turns among themselves, too.
#[derive(Debug, Default)]
pub(crate) struct ReadyConnections {
    /// The parties with ready connections; the first is next.
    parties: VecDeque<Party>,
    of_party: HashMap<Party, VecDeque<ConnectionId>>,
    queued: HashSet<ConnectionId>,
}

impl ReadyConnections {
    /// Adds a connection of a party behind its others. One that is queued already keeps its place.
    pub(crate) fn add(&mut self, id: ConnectionId, party: Party) {
        if !self.queued.insert(id) {
            return;
        }
        let connections = self.of_party.entry(party).or_default();
        if connections.is_empty() {
            self.parties.push_back(party);
        }
        connections.push_back(id);
    }

    /// Takes the connection whose turn it is.
    pub(crate) fn next(&mut self) -> Option<ConnectionId> {
        let party = self.parties.pop_front()?;
        let connections = self.of_party.get_mut(&party)?;
        let id = connections.pop_front()?;
        if connections.is_empty() {
            self.of_party.remove(&party);
        } else {
            self.parties.push_back(party);
        }
        self.queued.remove(&id);
        Some(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::ClientId;

    const A: Party = Party::Client(ClientId(1));
    const B: Party = Party::Client(ClientId(2));

    fn drain(ready: &mut ReadyConnections) -> Vec<u64> {
        std::iter::from_fn(|| ready.next()).map(|id| id.0).collect()
    }

    #[test]
    fn parties_take_turns_whatever_number_of_connections_they_have() {
        let mut ready = ReadyConnections::default();
        let peers = [
            Party::peer(Some("uid-1"), Some(1), Some(0)),
            Party::peer(Some("uid-2"), Some(2), Some(0)),
            Party::peer(None, Some(3), Some(0)),
            Party::peer(None, None, Some(0)),
            Party::peer(None, None, None),
        ];
        (1..=5).for_each(|id| ready.add(ConnectionId(id), A));
        ready.add(ConnectionId(11), B);
        ready.add(ConnectionId(12), B);
        // Another process of the first pod counts as the same peer.
        ready.add(ConnectionId(20), Party::peer(Some("uid-1"), Some(9), Some(0)));
        (21..).zip(peers).for_each(|(id, peer)| ready.add(ConnectionId(id), peer));
        assert_eq!(drain(&mut ready), [1, 11, 20, 22, 23, 24, 25, 2, 12, 21, 3, 4, 5]);
        assert!(ready.is_empty());
    }

    #[test]
    fn queued_connection_is_taken_once_and_a_later_one_of_its_party_follows() {
        let mut ready = ReadyConnections::default();
        ready.add(ConnectionId(1), A);
        ready.add(ConnectionId(1), A);
        ready.add(ConnectionId(2), A);
        assert_eq!(ready.next(), Some(ConnectionId(1)));
        ready.add(ConnectionId(1), A);
        assert_eq!(drain(&mut ready), [2, 1]);
    }
}
