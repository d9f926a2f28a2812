//! Connections come and go.

use super::DataPlane;
use crate::connection::{Connection, Incoming, Role, Transport};
use crate::peer::Peer;
use crate::reason::Reason;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::{SockaddrStorage, getpeername, setsockopt, sockopt};
use sluice_comm::Channel;
use sluice_core::pod_cgroup::pod_of;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use tracing::{debug, warn};

/// Frames taken from one connection before the others get their turn; what is left is reported again.
const FRAMES_PER_TURN: usize = 32;

/// Connections accepted before the others get their turn: whoever connects without end must not stop them.
const ACCEPTS_PER_TURN: usize = 32;

/// A descriptor to give up when there are no more.
pub(super) fn spare() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

fn set_nonblocking(socket: &OwnedFd) -> io::Result<()> {
    // A fresh socket has no other status flag.
    Ok(fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)?)
}

fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl DataPlane {
    pub(super) fn accept_unix(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let next = |plane: &Self| plane.unix.listener.accept().map(|(stream, _)| stream.into());
            let Some(socket) = self.accept(next) else { return };
            match self.peers.look(socket.as_fd()) {
                Ok(peer) => {
                    let label = format!("pid {} uid {}", peer.credentials.pid, peer.credentials.uid);
                    self.add_connection(socket, Transport::Unix, Some(peer), label);
                }
                Err(error) => {
                    self.closer.close(socket);
                    if matches!(
                        error.raw_os_error().map(Errno::from_raw),
                        Some(Errno::EMFILE | Errno::ENFILE)
                    ) {
                        self.out_of_descriptors();
                    } else {
                        debug!(%error, "peer has gone before it was accepted");
                    }
                }
            }
        }
    }

    pub(super) fn accept_tcp(&mut self) {
        let next = |plane: &Self| {
            let listener = plane.tcp.as_ref().ok_or(io::ErrorKind::WouldBlock)?;
            Ok(listener.accept()?.0.into())
        };
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(socket) = self.accept(next) else { return };
            // An answer is one small segment that somebody waits for; failing that it is merely later.
            let _ = setsockopt(&socket, sockopt::TcpNoDelay, &true);
            let address = getpeername::<SockaddrStorage>(socket.as_raw_fd());
            let label = address.map_or_else(|_| "tcp".to_owned(), |address| format!("tcp {address}"));
            self.add_connection(socket, Transport::Tcp, None, label);
        }
    }

    fn accept(&mut self, mut next: impl FnMut(&Self) -> io::Result<OwnedFd>) -> Option<OwnedFd> {
        loop {
            let error = match next(self) {
                Ok(socket) => match set_nonblocking(&socket) {
                    Ok(()) => return Some(socket),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                Some(Errno::EMFILE | Errno::ENFILE) if self.spare.take().is_some() => {
                    // Left in the queue it would wake the loop for ever.
                    self.closer.close(next(self));
                    self.spare = spare();
                    self.out_of_descriptors();
                }
                _ if error.kind() == io::ErrorKind::WouldBlock => return None,
                _ => {
                    warn!(%error, "cannot accept a connection");
                    return None;
                }
            }
        }
    }

    fn add_connection(&mut self, socket: OwnedFd, transport: Transport, peer: Option<Peer>, label: String) {
        let mut connection = Connection::new(socket, transport, peer, label);
        connection.pod = self.pod_to_count(&connection);
        let of_process = connection.pid.and_then(|pid| self.by_pid.get(&pid)).copied().unwrap_or(0);
        if of_process >= self.max_connections_per_process {
            return self.refuse(connection, &Reason::TooManyOfProcess);
        }
        // A pod has as many processes as it likes.
        let of_pod = connection.pod.as_ref().and_then(|pod| self.by_pod.get(pod)).copied().unwrap_or(0);
        if let Some(pod) = connection.pod.clone().filter(|_| of_pod >= (self.max_connections / 4).max(2)) {
            return self.refuse(connection, &Reason::TooManyOfPod(pod));
        }
        if self.connections.len() >= self.max_connections && !self.make_room() {
            return self.refuse(connection, &Reason::TooMany);
        }
        let number = self.next_number(false);
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, number);
        match self.epoll.add(connection.fd(), event) {
            Ok(()) => {
                debug!(peer = %connection, "connected");
                if let Some(pid) = connection.pid {
                    *self.by_pid.entry(pid).or_default() += 1;
                }
                if let Some(pod) = &connection.pod {
                    *self.by_pod.entry(pod.clone()).or_default() += 1;
                }
                self.connections.insert(number, connection);
            }
            Err(error) => {
                warn!(peer = %connection, %error, "cannot watch a connection");
                self.closer.close(connection);
            }
        }
    }

    /// Who is in no pod has no uid; it is not let in either, and stays only until it says something.
    fn pod_to_count(&self, connection: &Connection) -> Option<String> {
        let place = connection.peer.as_ref()?.place.as_ref().filter(|_| self.recognises_pods)?;
        pod_of(&place.cgroup).ok().map(|pod| pod.uid)
    }

    /// Closes a connection that was not taken in.
    fn refuse(&mut self, connection: Connection, reason: &Reason) {
        self.complain(&connection.label, "unknown", reason);
        self.closer.close(connection);
    }

    /// Counts a connection that is closed for a reason; says so, but not without end.
    fn complain(&mut self, peer: &str, client: &str, reason: &Reason) {
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

    /// A connection was refused because there was no descriptor for it; the next one is to find one.
    fn out_of_descriptors(&mut self) {
        self.meters.refused(&Reason::TooMany);
        if let Some(dropped) = self.throttle.pass("descriptors", self.clock.now_ns()) {
            warn!(dropped, "out of descriptors: a connection was refused");
        }
        self.make_room();
    }

    /// Closes the oldest connection that has not said anything that counts; `false` if all have.
    fn make_room(&mut self) -> bool {
        loop {
            let oldest = self.connections.iter().find(|(_, connection)| connection.role == Role::New);
            let Some(number) = oldest.map(|(number, _)| *number) else { return false };
            // What it said may not have been read yet.
            self.receive(number);
            match self.connections.get(&number).map(|connection| connection.role) {
                None => return true,
                Some(Role::New) => {
                    self.close(number, &Reason::TooMany);
                    return true;
                }
                Some(_) => {}
            }
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
