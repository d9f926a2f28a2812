//! Connections that want to attach before their pod is a client: they are held until it is, or until their time is up.
//!
//! A pod's processes may be faster than the news of the pod, and a manager that has just been started knows nobody. While
//! it is held a connection is not read, so it costs nothing but its descriptor.

use super::DataPlane;
use super::attach::Attaching;
use super::frames::Outcome;
use crate::connection::Role;
use crate::reason::Reason;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::collections::BTreeMap;
use tracing::{info, warn};

/// Connections of one pod that may be held at once.
const MAX_OF_POD: usize = 64;

/// A connection that is held.
struct Held {
    attaching: Attaching,
    uid: String,
    until: u64,
}

/// All of them, and how long and how many they may be.
pub(super) struct Lobby {
    held: BTreeMap<u64, Held>,
    hold_ns: u64,
    max: usize,
}

impl Lobby {
    /// Nobody is held with a time of zero.
    pub(super) fn new(hold_ns: u64, max: usize) -> Self {
        Self { held: BTreeMap::new(), hold_ns, max }
    }

    /// When the first one's time is up.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.held.values().map(|held| held.until).min()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn forget(&mut self, number: u64) {
        self.held.remove(&number);
    }
}

impl DataPlane {
    /// Holds a connection whose pod is no client, if it may be held.
    pub(super) fn hold(&mut self, number: u64, attaching: Attaching, uid: String) -> Outcome {
        if self.lobby.hold_ns == 0 || self.clients.was_left_out(&uid) {
            return Err(Reason::UnknownPod { uid, waited_ms: 0 });
        }
        let of_pod = self.lobby.held.values().filter(|held| held.uid == uid).count();
        if self.lobby.len() >= self.lobby.max || of_pod >= MAX_OF_POD {
            return Err(Reason::TooManyHeld(uid));
        }
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        // Only its end is of interest until then.
        let mut event = EpollEvent::new(EpollFlags::EPOLLRDHUP, number);
        self.epoll.modify(connection.fd(), &mut event).map_err(|error| Reason::Socket(error.into()))?;
        connection.role = Role::Held;
        info!(peer = %connection, pod_uid = uid, "is held until its pod is a client");
        let until = self.clock.now_ns().saturating_add(self.lobby.hold_ns);
        self.lobby.held.insert(number, Held { attaching, uid, until });
        Ok(())
    }

    /// Lets those in whose pods are clients by now.
    pub(super) fn admit_held(&mut self) {
        let numbers: Vec<u64> = self.lobby.held.keys().copied().collect();
        for number in numbers {
            let Some(mut held) = self.lobby.held.remove(&number) else { continue };
            if !self.clients.has_pod(&held.uid) {
                self.lobby.held.insert(number, held);
                continue;
            }
            self.release(number, &mut held.attaching);
        }
    }

    /// Attaches a connection that was held, and listens to it again.
    fn release(&mut self, number: u64, attaching: &mut Attaching) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.role = Role::New;
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, number);
        let listening = self.epoll.modify(connection.fd(), &mut event);
        if let Err(error) = listening {
            warn!(peer = %connection, %error, "cannot watch a connection");
            return self.drop_connection(number);
        }
        match self.admit(number, attaching) {
            // What it sent behind the ATTACH may have been read with it.
            Ok(()) => self.receive(number),
            Err(reason) => self.refuse_attach(number, attaching.request, &reason),
        }
    }

    /// Refuses those whose time is up.
    pub(super) fn expire_held(&mut self) {
        if self.lobby.held.is_empty() {
            return;
        }
        let now = self.clock.now_ns();
        let due = self.lobby.held.iter().filter(|(_, held)| held.until <= now).map(|(number, _)| *number);
        let due: Vec<u64> = due.collect();
        for number in due {
            let Some(held) = self.lobby.held.remove(&number) else { continue };
            let waited_ms = self.lobby.hold_ns / 1_000_000;
            let reason = Reason::UnknownPod { uid: held.uid, waited_ms };
            self.refuse_attach(number, held.attaching.request, &reason);
        }
    }
}
