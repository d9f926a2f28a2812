//! The clients that wait for a grant, in the order in which they are granted. Every operation takes logarithmic time.

use super::virtual_time::VirtualNs;
use crate::ids::ClientId;
use std::collections::BTreeSet;

/// Position among the clients that may be granted: the smallest virtual time first. Ties go to the client that waits
/// longest, then to the older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) start: VirtualNs,
    pub(super) since: u64,
    pub(super) client: ClientId,
}

/// Where a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Ready, and one of its waiting processes is hardware-scheduled.
    Hardware(Key),
    /// Ready, with token-scheduled processes only.
    Token(Key),
    /// Its limit allows a grant from this time on, nanoseconds.
    Limited(u64),
}

/// All waiting clients. Each of them knows its own [`Place`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadyQueue {
    hardware: BTreeSet<Key>,
    token: BTreeSet<Key>,
    limited: BTreeSet<(u64, ClientId)>,
}

impl ReadyQueue {
    /// Adds a client that is in no place.
    pub(super) fn insert(&mut self, client: ClientId, place: Place) {
        match place {
            Place::Hardware(key) => self.hardware.insert(key),
            Place::Token(key) => self.token.insert(key),
            Place::Limited(at) => self.limited.insert((at, client)),
        };
    }

    /// Removes a client from its place.
    pub(super) fn remove(&mut self, client: ClientId, place: Place) {
        match place {
            Place::Hardware(key) => self.hardware.remove(&key),
            Place::Token(key) => self.token.remove(&key),
            Place::Limited(at) => self.limited.remove(&(at, client)),
        };
    }

    /// The client to grant next.
    pub(super) fn first(&self) -> Option<Key> {
        self.hardware.first().into_iter().chain(self.token.first()).min().copied()
    }

    /// The first of the clients that may be granted for which `is` holds.
    pub(super) fn first_that(&self, is: impl Fn(&Key) -> bool) -> Option<Key> {
        let token = self.token.iter().find(|key| is(key));
        self.hardware.iter().find(|key| is(key)).into_iter().chain(token).min().copied()
    }

    /// The clients without a hardware-scheduled process that may be granted, in their order.
    pub(super) fn by_token(&self) -> impl Iterator<Item = &Key> {
        self.token.iter()
    }

    /// The clients with a hardware-scheduled process that may be granted, in their order.
    pub(super) fn with_hardware(&self) -> impl Iterator<Item = &Key> {
        self.hardware.iter()
    }

    /// The client whose limit allows a grant next, and when.
    pub(super) fn first_limited(&self) -> Option<(u64, ClientId)> {
        self.limited.first().copied()
    }

    /// Whether no client waits.
    pub(super) fn is_empty(&self) -> bool {
        self.hardware.is_empty() && self.token.is_empty() && self.limited.is_empty()
    }
}
