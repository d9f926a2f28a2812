//! The connections: listeners, limits, and the attaches that wait until their pod is known.

mod connection;
mod limits;
mod listeners;
mod pending;
mod ready;

pub(crate) use connection::{Connection, Incoming, Role, Transport};
pub(crate) use listeners::{Accepted, Listener};
pub(crate) use pending::{Attach, PendingAttaches};
pub(crate) use ready::ReadyConnections;

use crate::clients::Clients;
use crate::config::{ClientSource, Config, nanos};
use crate::io::Io;
use crate::listen::UnixSocket;
use crate::party::Party;
use crate::peer::Peers;
use crate::poller::Source;
use crate::processes::{Process, Processes};
use crate::reason::Reason;
use connection::UNKNOWN_PEER;
use limits::Limits;
use listeners::Listeners;
use nix::sys::epoll::EpollFlags;
use sluice_comm::{Name, Response, ResponseBody};
use sluice_core::pod_cgroup::PodCgroup;
use sluice_core::{ClientId, ConnectionId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use tracing::{debug, warn};

/// A frame was handled, or its connection is to be closed for this reason.
pub(crate) type Outcome = Result<(), Reason>;

/// Channels of a process that attaches.
pub(crate) const ATTACHED_CONNECTIONS: usize = 2;

/// The client of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerClient {
    pub(crate) client: ClientId,
    /// The container that the peer is in, where its identity names one.
    pub(crate) container: Option<String>,
}

/// All connections.
pub(crate) struct Connections {
    listeners: Listeners,
    pub(crate) peers: Box<dyn Peers>,
    limits: Limits,
    /// Peers are recognised by the pod of their cgroup, whatever name they claim (clients of the node agent).
    by_cgroup: bool,
    /// Oldest first.
    open: BTreeMap<ConnectionId, Connection>,
    /// Connections on the unix socket by pid, where the kernel reports it.
    by_pid: HashMap<i32, usize>,
    /// Connections by their pods' uids, whether these are clients or not.
    by_pod: HashMap<String, usize>,
    pub(crate) pending: PendingAttaches,
    /// Memory channels with frames to read. They come before all others.
    pub(crate) ready_memory: ReadyConnections,
    /// Other connections with frames to read.
    pub(crate) ready: ReadyConnections,
    last: u64,
}

impl Connections {
    /// Registers the listeners.
    pub(crate) fn new(
        config: &Config,
        (unix, tcp): (UnixSocket, Option<TcpListener>),
        peers: Box<dyn Peers>,
        io: &Io,
    ) -> nix::Result<Self> {
        let pending = match &config.clients {
            ClientSource::File { .. } => PendingAttaches::new(0, 0),
            ClientSource::Agent(agent) => PendingAttaches::new(nanos(agent.pending_time), agent.max_pending),
        };
        let limits = Limits::of(config);
        Ok(Self {
            listeners: Listeners::new(unix, tcp, io)?,
            peers,
            limits,
            by_cgroup: matches!(config.clients, ClientSource::Agent(_)),
            open: BTreeMap::new(),
            by_pid: HashMap::new(),
            by_pod: HashMap::new(),
            pending,
            ready_memory: ReadyConnections::default(),
            ready: ReadyConnections::default(),
            last: 0,
        })
    }

    /// Accepts one connection; it is not open yet.
    pub(crate) fn accept(&mut self, listener: Listener, io: &mut Io) -> Accepted {
        let socket = match self.listeners.accept(listener, io) {
            Ok(socket) => socket,
            Err(outcome) => return outcome,
        };
        if listener == Listener::Tcp {
            return Accepted::Connection(Box::new(Connection::over_tcp(socket)));
        }
        match self.peers.identify(socket.as_fd()) {
            Ok(peer) => Accepted::Connection(Box::new(Connection::over_unix(socket, peer, self.by_cgroup))),
            Err(error) => {
                let is_exhausted = listeners::is_out_of_descriptors(&error);
                if is_exhausted {
                    listeners::answer_no_room(socket.as_fd());
                }
                io.closer.close(socket);
                if is_exhausted {
                    return Accepted::OutOfDescriptors;
                }
                debug!(%error, "peer has ended before it was accepted");
                Accepted::PeerGone
            }
        }
    }

    /// Why a new connection has to be refused, whatever room there is.
    pub(crate) fn refusal(&self, connection: &Connection) -> Option<Reason> {
        let of_process = connection.pid.and_then(|pid| self.by_pid.get(&pid)).copied().unwrap_or(0);
        if of_process >= self.limits.of_process {
            return Some(Reason::TooManyOfProcess);
        }
        let pod = connection.pod_uid()?;
        let of_pod = self.by_pod.get(pod).copied().unwrap_or(0);
        (of_pod >= self.limits.of_client).then(|| Reason::TooManyOfPod(pod.to_owned()))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= self.limits.total
    }

    /// Answers that there is no room on a connection that is closed before it was read.
    pub(crate) fn answer_no_room(&self, connection: &Connection) {
        if connection.transport == Transport::Unix {
            listeners::answer_no_room(connection.fd());
        }
    }

    /// Opens an accepted connection: it is polled and counted.
    pub(crate) fn open(&mut self, connection: Connection, io: &Io) {
        self.last += 1;
        let id = ConnectionId(self.last);
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        if let Err(error) = io.poller.add(connection.fd(), Source::Connection(id), flags) {
            warn!(peer = %connection.label, %error, "cannot poll a connection");
            return io.closer.close(connection);
        }
        debug!(peer = %connection.label, "connected");
        if let Some(pid) = connection.pid {
            *self.by_pid.entry(pid).or_default() += 1;
        }
        if let Some(pod) = connection.pod_uid() {
            *self.by_pod.entry(pod.to_owned()).or_default() += 1;
        }
        self.open.insert(id, connection);
    }

    /// Whether a connection waits to be read.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready_memory.is_empty() || !self.ready.is_empty()
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.open.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.open.get_mut(&id)
    }

    pub(crate) fn role(&self, id: ConnectionId) -> Option<Role> {
        self.open.get(&id).map(|connection| connection.role)
    }

    /// The connection's name for logs.
    pub(crate) fn label(&self, id: ConnectionId) -> String {
        self.open.get(&id).map(|connection| connection.label.clone()).unwrap_or_default()
    }

    pub(crate) fn set_role(&mut self, id: ConnectionId, role: Role) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.role = role;
        }
    }

    /// Sends an answer. A connection that has gone is not an error.
    pub(crate) fn answer(&self, id: ConnectionId, request: i32, body: ResponseBody) -> Outcome {
        self.answer_with_fds(id, request, body, &[])
    }

    /// As [`Self::answer`], with descriptors.
    pub(crate) fn answer_with_fds(
        &self,
        id: ConnectionId,
        request: i32,
        body: ResponseBody,
        fds: &[BorrowedFd<'_>],
    ) -> Outcome {
        self.open.get(&id).map_or(Ok(()), |connection| connection.send(&Response { id: request, body }, fds))
    }

    /// The party that a connection counts for while it belongs to no client.
    pub(crate) fn party(&self, id: ConnectionId) -> Option<Party> {
        self.open.get(&id).map(Connection::party)
    }

    /// The oldest connection that has sent no valid request, and none that waits to be read, among the `candidates` oldest ones without a
    /// valid request. A candidate costs one system call.
    pub(crate) fn oldest_silent(&self, candidates: usize) -> Option<ConnectionId> {
        let new = self.open.iter().filter(|(_, connection)| connection.role == Role::New);
        new.take(candidates).find(|(_, connection)| connection.is_silent()).map(|(id, _)| *id)
    }

    /// Takes a connection out; the caller closes it on the closing thread.
    pub(crate) fn take(&mut self, id: ConnectionId, io: &Io) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        io.poller.remove(connection.fd());
        if let Some(pid) = connection.pid {
            decrement(&mut self.by_pid, pid);
        }
        if let Some(pod) = connection.pod_uid() {
            decrement(&mut self.by_pod, pod.to_owned());
        }
        self.pending.remove(id);
        Some(connection)
    }

    /// All connections, for the end of the manager.
    pub(crate) fn take_all(&mut self) -> BTreeMap<ConnectionId, Connection> {
        std::mem::take(&mut self.open)
    }

    /// The client that the peer of a connection belongs to, when it gives this name.
    pub(crate) fn client_of(
        &self,
        id: ConnectionId,
        name: &Name,
        clients: &Clients,
        processes: &Processes,
    ) -> Result<PeerClient, Reason> {
        let connection = self.open.get(&id);
        // A peer of the old protocol is identified anew with every frame; the pod of its process is known already.
        if let Some(Role::Legacy(process)) = connection.map(|connection| connection.role)
            && self.by_cgroup
            && let Some(client) = processes.client_of(process)
        {
            return Ok(PeerClient { client, container: None });
        }
        if !self.by_cgroup {
            let client =
                clients.find_by_name(name).ok_or_else(|| Reason::UnknownClient(name.as_str().to_owned()))?;
            return Ok(PeerClient { client, container: None });
        }
        // On a Kubernetes node a peer belongs to the pod of its cgroup, whatever name it claims.
        let pod =
            connection.map_or_else(|| Err(UNKNOWN_PEER.to_owned()), |connection| connection.pod.clone());
        let PodCgroup { uid, container } = pod.map_err(Reason::NotAllowed)?;
        match clients.find_by_pod(&uid) {
            Some(client) => Ok(PeerClient { client, container }),
            None => Err(Reason::UnknownPod { uid, waited_ms: 0 }),
        }
    }

    /// Whether a client may have a process with so many connections more.
    pub(crate) fn check_client(
        &self,
        client: ClientId,
        more: usize,
        clients: &Clients,
        processes: &Processes,
    ) -> Outcome {
        let due: usize = processes.of_client(client).map(|(_, process)| due_connections(process)).sum();
        if due + more <= self.limits.of_client {
            Ok(())
        } else {
            Err(Reason::TooManyOfClient(clients.name(client).to_owned()))
        }
    }

    /// Makes a connection wait for its pod, if it may.
    pub(crate) fn hold(&mut self, id: ConnectionId, attach: Attach, uid: String, io: &mut Io) -> Outcome {
        self.pending.check(&uid)?;
        let Some(connection) = self.open.get_mut(&id) else { return Ok(()) };
        // Until then only its end is reported.
        let polled = io.poller.modify(connection.fd(), Source::Connection(id), EpollFlags::EPOLLRDHUP);
        polled.map_err(|error| Reason::Socket(error.into()))?;
        connection.role = Role::Pending;
        if let Some(dropped) = io.may_log("pending", Party::peer(Some(&uid), None, None)) {
            let peer = &connection.label;
            tracing::info!(%peer, pod_uid = uid, dropped, "attach waits until its pod is a client");
        }
        self.pending.add(id, attach, uid, io.now());
        Ok(())
    }

    /// A connection is a memory channel from now on: its requests are read before others. If the kernel refuses that, they are read with
    /// the others.
    pub(crate) fn prefer(&self, id: ConnectionId, io: &Io) {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        if let Some(connection) = self.open.get(&id)
            && let Err(error) = io.poller.prefer(connection.fd(), Source::Connection(id), flags)
        {
            warn!(peer = %connection.label, %error, "requests of a memory channel are not read first");
        }
    }

    /// Reads a connection again that waited for its pod.
    pub(crate) fn resume(&mut self, id: ConnectionId, io: &Io) -> nix::Result<()> {
        let Some(connection) = self.open.get_mut(&id) else { return Ok(()) };
        connection.role = Role::New;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        io.poller.modify(connection.fd(), Source::Connection(id), flags)
    }
}

fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// The number of connections that a process has or may still open: a process that attaches has two channels, a peer of the old protocol one
/// connection. So a process that was admitted gets its second channel.
fn due_connections(process: &Process) -> usize {
    match (process.endpoint.pages.is_some() || process.memory.is_some(), process.token) {
        (true, _) => ATTACHED_CONNECTIONS,
        (false, Some(_)) => 1,
        // It has closed its connections, or is unhooked.
        (false, None) => 0,
    }
}
