//! The party that a log line or a turn counts for: no party hides what the log says about another, or delays another's requests.

use sluice_core::ClientId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A client, or what is known of a peer that belongs to no client yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// The manager itself, and everything that no single client causes.
    Manager,
    /// A client's processes.
    Client(ClientId),
    /// A peer that belongs to no client yet: a hash of its pod, or else of its process, or else of its user.
    Peer(u64),
    /// All further peers.
    OtherPeers,
}

impl Party {
    /// A peer without a client, by the first of these that is known: its pod, its process, its user. A process in a pid namespace that is
    /// not visible here has a user only, a TCP peer has none of them.
    pub(crate) fn peer(pod: Option<&str>, pid: Option<i32>, uid: Option<u32>) -> Self {
        let mut hasher = DefaultHasher::new();
        match (pod, pid, uid) {
            (Some(pod), ..) => ("pod", pod).hash(&mut hasher),
            (None, Some(pid), _) => ("pid", pid).hash(&mut hasher),
            (None, None, Some(uid)) => ("uid", uid).hash(&mut hasher),
            (None, None, None) => return Self::OtherPeers,
        }
        Self::Peer(hasher.finish())
    }
}

impl From<Option<ClientId>> for Party {
    fn from(client: Option<ClientId>) -> Self {
        client.map_or(Self::Manager, Self::Client)
    }
}
