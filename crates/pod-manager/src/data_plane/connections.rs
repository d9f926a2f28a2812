//! Connections come and go; processes end.

use super::DataPlane;
use crate::connection::{Connection, Incoming, Role, Transport};
use crate::peer::Peer;
use crate::process::Process;
use crate::reason::Reason;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::{SockaddrStorage, getpeername, setsockopt, sockopt};
use sluice_comm::Channel;
use sluice_core::ProcessId;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use tracing::{debug, info, warn};

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
                    debug!(%error, "peer has gone before it was accepted");
                    self.closer.close(socket);
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
                    self.meters.refused(&Reason::TooMany);
                    warn!("out of descriptors: a connection was refused");
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
        if self.connections.len() >= self.max_connections {
            self.meters.refused(&Reason::TooMany);
            warn!(peer = %label, "connection refused: {}", Reason::TooMany);
            return self.closer.close(socket);
        }
        let number = self.next_number(false);
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, number);
        match self.epoll.add(&socket, event) {
            Ok(()) => {
                debug!(peer = %label, "connected");
                self.connections.insert(number, Connection::new(socket, transport, peer, label));
            }
            Err(error) => {
                warn!(peer = %label, %error, "cannot watch a connection");
                self.closer.close(socket);
            }
        }
    }

    /// Takes what a connection has to say.
    pub(super) fn receive(&mut self, number: u64) {
        for _ in 0..FRAMES_PER_TURN {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            let outcome = match connection.read() {
                Ok(Incoming::Request(request, fds)) => {
                    let outcome = self.handle(number, &request, &fds);
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
            Role::New => "unknown",
            Role::Attached(process, _) | Role::Legacy(process) => {
                self.processes.get(&process).map_or("unknown", |process| self.clients.name(process.client))
            }
        };
        warn!(peer = %connection, client, reason = reason.label(), "connection closed: {reason}");
        self.meters.refused(reason);
        self.drop_connection(number);
    }

    /// Forgets a connection and what hung on it.
    pub(super) fn drop_connection(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        // Closing takes it out of epoll only if no other process holds a copy; what was never added is no loss.
        let _ = self.epoll.delete(connection.fd());
        let now = self.clock.now_ns();
        let role = connection.role;
        self.closer.close(connection);
        match role {
            Role::New => {}
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
                if channel == Channel::Token {
                    process.pending.clear();
                    if let Some(pages) = &process.pages {
                        pages.grant().close();
                    }
                    self.tokens.process_gone(id, now);
                }
                if process.token.is_none() && process.memory.is_none() {
                    self.forget_process(id, "left");
                }
            }
        }
    }

    /// The pidfd says that a process has ended; a child of it may still hold its sockets.
    pub(super) fn process_ended(&mut self, id: ProcessId) {
        self.forget_process(id, "ended");
    }

    /// Forgets a process: its token and its memory go back at once, its connections are closed.
    pub(super) fn forget_process(&mut self, id: ProcessId, how: &str) {
        let now = self.clock.now_ns();
        self.charge_standing(id, now);
        let Some(process) = self.processes.remove(&id) else { return };
        self.tokens.process_gone(id, now);
        let bytes = self.memory.process_gone(id);
        if let Some(key) = process.key {
            self.by_peer.remove(&key);
        }
        if let Some(pages) = &process.pages {
            pages.grant().close();
        }
        if let Some(pidfd) = &process.pidfd {
            let _ = self.epoll.delete(pidfd);
        }
        for number in process.connections() {
            if let Some(connection) = self.connections.remove(&number) {
                let _ = self.epoll.delete(connection.fd());
                self.closer.close(connection);
            }
        }
        let client = self.clients.name(process.client);
        info!(client, peer = %process.label, bytes, "process {how}, its memory is free again");
    }

    /// Keeps a process and watches for its end.
    pub(super) fn keep_process(&mut self, id: ProcessId, process: Process) {
        if let Some(pidfd) = &process.pidfd
            && let Err(error) = self.epoll.add(pidfd, EpollEvent::new(EpollFlags::EPOLLIN, id.0))
        {
            warn!(peer = %process.label, %error, "cannot watch for the end of a process; its sockets will have to tell");
        }
        if let Some(key) = process.key {
            self.by_peer.insert(key, id);
        }
        self.processes.insert(id, process);
    }
}
