//! Who connects is let in, or room is made for him, or he is refused.

use super::DataPlane;
use crate::connection::{Connection, Role, Transport};
use crate::peer::Peer;
use crate::reason::Reason;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::{SockaddrStorage, getpeername, setsockopt, sockopt};
use sluice_core::pod_cgroup::pod_of;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use tracing::{debug, warn};

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
}
