//! Connections say something, and end.

use super::DataPlane;
use crate::connection::{Connection, Incoming, Role};
use crate::reason::Reason;
use nix::sys::epoll::EpollFlags;
use sluice_comm::Channel;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use tracing::{debug, warn};

/// Frames taken from one connection before the others get their turn; what is left is reported again.
const FRAMES_PER_TURN: usize = 32;
fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl DataPlane {
    /// Counts a connection that is closed for a reason; says so, but not without end.
    pub(super) fn complain(&mut self, peer: &str, client: &str, reason: &Reason) {
        self.meters.refused(reason);
        let label = reason.label();
        match self.throttle.pass(label, self.clock.now_ns()) {
            Some(0) => warn!(peer, client, reason = label, "connection closed: {reason}"),
            Some(dropped) => {
                warn!(peer, client, reason = label, dropped, "connection closed: {reason}");
            }
            None => debug!(peer, client, reason = label, "connection closed: {reason}"),
        }
    }

    /// Takes a connection out; whoever calls this closes it.
    pub(super) fn take_connection(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        // Closing takes it out of epoll only if no other process holds a copy; what was never added is no loss.
        let _ = self.epoll.delete(connection.fd());
        if let Some(pid) = connection.pid {
            one_less(&mut self.by_pid, pid);
        }
        if let Some(pod) = &connection.pod {
            one_less(&mut self.by_pod, pod.clone());
        }
        Some(connection)
    }

    /// Takes what a connection has to say.
    pub(super) fn receive(&mut self, number: u64) {
        for _ in 0..FRAMES_PER_TURN {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if connection.role == Role::Held {
                return;
            }
            let outcome = match connection.read() {
                Ok(Incoming::Request(request, mut fds)) => {
                    let outcome = self.handle(number, &request, &mut fds);
                    if !fds.is_empty() {
                        self.closer.close(fds);
                    }
                    outcome
                }
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::End) => return self.drop_connection(number),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = outcome {
                return self.close(number, &reason);
            }
        }
    }

    /// Closes a connection for a reason that its peer's operator wants to know.
    pub(super) fn close(&mut self, number: u64, reason: &Reason) {
        let Some(connection) = self.connections.get(&number) else { return };
        let client = match connection.role {
            Role::New | Role::Held => "unknown".to_owned(),
            Role::Attached(process, _) | Role::Legacy(process) => {
                let client = self.processes.get(&process).map(|process| process.client);
                client.map_or("unknown", |client| self.clients.name(client)).to_owned()
            }
        };
        let label = connection.label.clone();
        self.complain(&label, &client, reason);
        self.drop_connection(number);
    }

    /// What epoll has to say of a connection: something came, or its peer has gone.
    pub(super) fn hear(&mut self, number: u64, events: EpollFlags) {
        let held = self.connections.get(&number).is_some_and(|connection| connection.role == Role::Held);
        let end = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if !held {
            self.receive(number);
        } else if events.intersects(end) {
            self.drop_connection(number);
        }
        // What a held one says was reported before it was held. It stays in the socket, which takes only so much.
    }

    /// Closes a connection of a client that was removed; its process stays as it is.
    pub(super) fn close_for_removal(&mut self, number: u64, reason: &Reason) {
        let Some(connection) = self.take_connection(number) else { return };
        self.complain(&connection.label, "removed", reason);
        self.closer.close(connection);
    }

    /// Forgets a connection and what hung on it.
    pub(super) fn drop_connection(&mut self, number: u64) {
        let Some(connection) = self.take_connection(number) else { return };
        let now = self.clock.now_ns();
        let role = connection.role;
        self.closer.close(connection);
        match role {
            Role::New => {}
            Role::Held => self.lobby.forget(number),
            Role::Legacy(process) => self.forget_process(process, "left"),
            Role::Attached(id, channel) => {
                let Some(process) = self.processes.get_mut(&id) else { return };
                let slot = match channel {
                    Channel::Token => &mut process.token,
                    Channel::Memory => &mut process.memory,
                };
                // A channel that was opened anew does not end with the old connection.
                if *slot != Some(number) {
                    return;
                }
                *slot = None;
                let left = process.token.is_none() && process.memory.is_none();
                if channel == Channel::Token {
                    process.close_token_channel();
                    self.part(id);
                    self.forget_stuck_groups(id);
                    self.tokens.process_gone(id, now);
                }
                if left {
                    self.forget_process(id, "left");
                }
            }
        }
    }
}
