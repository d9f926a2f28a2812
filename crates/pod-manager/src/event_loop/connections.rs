//! Connections: accepted, read and closed. Each frame is handed on by the role of its connection.

use super::EventLoop;
use crate::connections::{
    Accepted, Connection, Connections, Incoming, Listener, Outcome, ReadyConnections, Role, Transport,
};
use crate::party::Party;
use crate::processes::Event;
use crate::reason::Reason;
use nix::sys::epoll::EpollFlags;
use sluice_comm::{Channel, Request, RequestBody};
use sluice_core::{ClientId, ConnectionId};
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

/// Connections accepted in one round: a peer that connects without end does not keep the loop from other events.
const ACCEPTS_PER_ROUND: usize = 32;

/// Connections without a valid request that one search for room looks at: a peek each, so a search takes about as long as other work of a
/// round may. What has arrived on them is read in their turns.
const CANDIDATES: usize = 256;

/// Frames taken from a connection in its turn: a hook returns a grant and requests the next one at once. The poller reports the rest again.
const FRAMES_PER_TURN: usize = 4;

/// Turns in one round, for memory channels and for all other connections.
const TURNS_PER_ROUND: usize = 32;

/// Time of one round after which nothing more is begun: for accepting, for memory channels and for all other connections, nanoseconds each.
/// What was begun is finished: a request costs 2 to 200 µs, an accepted connection reads three files of /proc. A request for memory waits for
/// one round at most. Measured rounds: see `ROUND_BUCKETS` of the metrics.
const ROUND_BUDGET_NS: u64 = 100_000;

impl EventLoop {
    pub(super) fn accept(&mut self, listener: Listener) {
        let end = self.io.now().saturating_add(ROUND_BUDGET_NS);
        for accepted in 0..ACCEPTS_PER_ROUND {
            if accepted > 0 && self.io.now() >= end {
                return;
            }
            match self.connections.accept(listener, &mut self.io) {
                Accepted::Connection(connection) => self.open(*connection),
                Accepted::PeerGone => {}
                Accepted::OutOfDescriptors => self.out_of_descriptors(),
                Accepted::Nothing => return,
            }
        }
    }

    /// Opens an accepted connection, or closes it if there are too many.
    fn open(&mut self, connection: Connection) {
        let mut refusal = self.connections.refusal(&connection);
        if refusal.is_none() && self.connections.is_full() && !self.make_room() {
            refusal = Some(Reason::TooMany);
        }
        match refusal {
            None => self.connections.open(connection, &self.io),
            Some(reason) => {
                self.log_closing(&connection.label, "unknown", connection.party(), &reason);
                self.connections.answer_no_room(&connection);
                self.io.closer.close(connection);
            }
        }
    }

    /// A connection was refused because there was no descriptor for it. The next one is to find a descriptor.
    fn out_of_descriptors(&mut self) {
        self.io.metrics.refused(&Reason::TooMany);
        if let Some(dropped) = self.io.may_log("descriptors", Party::Manager) {
            warn!(dropped, "out of descriptors: a connection was refused");
        }
        self.make_room();
    }

    /// Closes the oldest connection that has sent no valid request, and none that waits to be read. `false` if there is none among the
    /// oldest [`CANDIDATES`].
    fn make_room(&mut self) -> bool {
        let Some(id) = self.connections.oldest_silent(CANDIDATES) else { return false };
        // Drops it without a reason if its peer has closed it.
        self.receive(id);
        if let Some(connection) = self.connections.get(id).filter(|connection| connection.role == Role::New) {
            self.connections.answer_no_room(connection);
            self.close(id, &Reason::TooMany);
        }
        self.connections.role(id).is_none()
    }

    /// The poller reports a connection: data has arrived, or its peer has closed it.
    pub(super) fn connection_ready(&mut self, id: ConnectionId, flags: EpollFlags) {
        let end = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if self.connections.role(id) != Some(Role::Pending) {
            self.queue(id);
        } else if flags.intersects(end) {
            self.drop_connection(id);
        }
        // Data on a pending connection stays in the socket, which has room for a limited amount.
    }

    /// Queues a connection to be read when the turn of its client comes, or of its peer if it belongs to no client.
    pub(super) fn queue(&mut self, id: ConnectionId) {
        let Some(role) = self.connections.role(id) else { return };
        let party = self.client_of(role).map(Party::Client).or_else(|| self.connections.party(id));
        let ready = match role {
            Role::Attached(_, Channel::Memory) => &mut self.connections.ready_memory,
            _ => &mut self.connections.ready,
        };
        ready.add(id, party.unwrap_or(Party::OtherPeers));
    }

    /// The client that a connection belongs to; `None` before it has attached.
    fn client_of(&self, role: Role) -> Option<ClientId> {
        match role {
            Role::New | Role::Pending => None,
            Role::Attached(process, _) | Role::Legacy(process) => self.processes.client_of(process),
        }
    }

    /// Reads queued connections, memory channels first, within the budget of a round.
    pub(super) fn serve_frames(&mut self) {
        self.serve_queue(|connections| &mut connections.ready_memory);
        self.serve_queue(|connections| &mut connections.ready);
    }

    fn serve_queue(&mut self, queue: impl Fn(&mut Connections) -> &mut ReadyConnections) {
        if queue(&mut self.connections).is_empty() {
            return;
        }
        let end = self.io.now().saturating_add(ROUND_BUDGET_NS);
        for _ in 0..TURNS_PER_ROUND {
            let Some(id) = queue(&mut self.connections).next() else { return };
            self.beat();
            self.receive(id);
            if self.io.now() >= end {
                return;
            }
        }
    }

    /// Takes the frames that have arrived on a connection, within its turn.
    pub(super) fn receive(&mut self, id: ConnectionId) {
        for _ in 0..FRAMES_PER_TURN {
            let Some(connection) = self.connections.get_mut(id) else { return };
            if connection.role == Role::Pending {
                return;
            }
            let outcome = match connection.read() {
                Ok(Incoming::Request(request, mut fds)) => {
                    let outcome = self.handle_request(id, &request, &mut fds);
                    if !fds.is_empty() {
                        self.io.closer.close(fds);
                    }
                    outcome
                }
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::End) => return self.drop_connection(id),
                Err(reason) => {
                    self.answer_unread(id, &reason);
                    Err(reason)
                }
            };
            if let Err(reason) = outcome {
                return self.close(id, &reason);
            }
        }
    }

    /// Handles one request. Descriptors that it does not take stay in `fds`.
    fn handle_request(&mut self, id: ConnectionId, request: &Request, fds: &mut Vec<OwnedFd>) -> Outcome {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (role, transport) = (connection.role, connection.transport);
        if let RequestBody::Attach { version, channel, used_bytes } = request.body {
            return match (role, transport) {
                (_, Transport::Tcp) => Err(Reason::OutOfOrder("ATTACH over TCP")),
                (Role::New, Transport::Unix) => self.attach(id, request, version, channel, used_bytes, fds),
                _ => self.refuse_second_attach(id, request.id),
            };
        }
        if let (RequestBody::MemUpdate { .. }, Role::Attached(_, Channel::Token)) = (request.body, role) {
            // A process releases by the connection by which it reserves.
            return Err(Reason::OutOfOrder("MEM_UPDATE on the token channel"));
        }
        if let (RequestBody::Contexts { version }, Role::Attached(process, _)) = (request.body, role) {
            return self.replace_contexts(id, process, version, fds);
        }
        if !fds.is_empty() {
            return Err(Reason::BadPayload(
                "a descriptor beside a request other than ATTACH and CONTEXTS".into(),
            ));
        }
        match role {
            Role::Attached(process, _) => self.handle_attached(id, process, request),
            // A pending connection is not read.
            Role::Pending => Ok(()),
            Role::New | Role::Legacy(_) => self.handle_legacy(id, request),
        }
    }

    /// Answers the first request of a connection, which could not be read whole, if the peer may be admitted later.
    fn answer_unread(&self, id: ConnectionId, reason: &Reason) {
        let first = self.connections.get(id).filter(|connection| connection.role == Role::New);
        if let Some(connection) = first.filter(|_| reason.is_lack_of_room()) {
            self.connections.answer_no_room(connection);
        }
    }

    /// Counts a connection that is closed for a reason, and logs it within the limit of log lines.
    fn log_closing(&mut self, peer: &str, client: &str, cause: Party, reason: &Reason) {
        self.io.metrics.refused(reason);
        let label = reason.label();
        match self.io.may_log(label, cause) {
            Some(dropped) => {
                warn!(peer, client, reason = label, dropped, "connection closed: {reason}");
            }
            None => debug!(peer, client, reason = label, "connection closed: {reason}"),
        }
    }

    /// Closes a connection for a reason that the operator of its peer has to know.
    pub(super) fn close(&mut self, id: ConnectionId, reason: &Reason) {
        let Some(connection) = self.connections.get(id) else { return };
        let client = self.client_of(connection.role);
        let cause = client.map_or_else(|| connection.party(), Party::Client);
        let client = client.map_or("unknown", |client| self.clients.name(client)).to_owned();
        let peer = connection.label.clone();
        self.log_closing(&peer, &client, cause, reason);
        self.drop_connection(id);
    }

    /// Closes a connection of a client that was removed; its process stays as it is.
    pub(super) fn close_for_removal(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.take(id, &self.io) else { return };
        self.log_closing(&connection.label, "removed", Party::Manager, &Reason::ClientRemoved);
        self.io.closer.close(connection);
    }

    /// Closes a connection and ends what depended on it.
    pub(super) fn drop_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.take(id, &self.io) else { return };
        let role = connection.role;
        self.io.closer.close(connection);
        match role {
            Role::New | Role::Pending => {}
            Role::Legacy(process) => self.forget_process(process, "disconnected"),
            Role::Attached(process, channel) => {
                let its = self.processes.get(process);
                let is_watched = its.is_some_and(|process| process.endpoint.pidfd.is_some());
                self.apply(Event::ChannelClosed { id: process, channel, connection: id, is_watched });
            }
        }
    }
}
