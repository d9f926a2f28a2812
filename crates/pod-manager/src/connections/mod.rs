//! The connections: listeners, limits, and the attaches that wait until their pod is known.

mod accept;
mod connection;
mod pending;
mod ready;

pub(crate) use accept::{Accepted, Listener};
pub(crate) use connection::{Connection, Incoming, Role, Transport};
pub(crate) use pending::{Attach, PendingAttaches};
pub(crate) use ready::ReadyConnections;

use crate::clients::Clients;
use crate::config::{ClientSource, Config, nanos};
use crate::io::Io;
use crate::listen::UnixSocket;
use crate::party::Party;
use crate::peer::{Peer, Peers};
use crate::poller::Source;
use crate::processes::Processes;
use crate::reason::Reason;
use nix::sys::epoll::EpollFlags;
use nix::sys::resource::{Resource, getrlimit};
use sluice_comm::{Name, Response, ResponseBody};
use sluice_core::pod_cgroup::PodCgroup;
use sluice_core::{ClientId, ConnectionId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A frame was handled, or its connection is to be closed for this reason.
pub(crate) type Outcome = Result<(), Reason>;

/// The client of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerClient {
    pub(crate) client: ClientId,
    /// The container that the peer is in, where its identity names one.
    pub(crate) container: Option<String>,
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
struct Limits {
    total: usize,
    of_process: usize,
    /// Connections of one client's processes, and of one pod, whether it is a client or not: one of them cannot take those of all.
    of_client: usize,
}

/// Connections that one client may have if there is room for those of others: 128 processes, such as the ranks of an MPI program on a
/// large host, also where the limit of descriptors is 1024.
const CLIENT_FLOOR: usize = 256;

/// Descriptors of a connection: a process has two connections, two pages, an eventfd and a pidfd.
const DESCRIPTORS_EACH: u64 = 3;

/// Descriptors for everything but connections: HTTP, the control API, driver files.
const DESCRIPTORS_RESERVED: u64 = 128;

impl Limits {
    /// Of this configuration, as far as the descriptors of this process suffice.
    fn of(config: &Config) -> Self {
        Self::within(getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft), config)
    }

    fn within(descriptors: u64, config: &Config) -> Self {
        let free = descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2);
        let possible = usize::try_from(free / DESCRIPTORS_EACH).unwrap_or(usize::MAX).max(4);
        let total = config.max_connections.min(possible);
        // A quarter, or the floor, but at least an eighth is left to others.
        let left = total.saturating_sub((total / 8).max(2));
        let of_client = (total / 4).max(CLIENT_FLOOR.min(left)).max(2);
        if possible < config.max_connections {
            tracing::warn!(
                descriptors,
                connections = total,
                of_client,
                "the limit of descriptors bounds the number of connections"
            );
        }
        Self { total, of_process: config.max_connections_per_process, of_client }
    }
}

/// All connections.
pub(crate) struct Connections {
    unix: UnixSocket,
    tcp: Option<TcpListener>,
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
    /// Closed for a moment when descriptors run out, so that a connection can be accepted and closed.
    reserve: Option<OwnedFd>,
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
        io.poller.add(&unix.listener, Source::UnixListener, EpollFlags::EPOLLIN)?;
        if let Some(tcp) = &tcp {
            io.poller.add(tcp, Source::TcpListener, EpollFlags::EPOLLIN)?;
        }
        let pending = match &config.clients {
            ClientSource::File { .. } => PendingAttaches::new(0, 0),
            ClientSource::Agent(agent) => PendingAttaches::new(nanos(agent.pending_time), agent.max_pending),
        };
        let limits = Limits::of(config);
        Ok(Self {
            unix,
            tcp,
            peers,
            limits,
            by_cgroup: matches!(config.clients, ClientSource::Agent(_)),
            open: BTreeMap::new(),
            by_pid: HashMap::new(),
            by_pod: HashMap::new(),
            pending,
            ready_memory: ReadyConnections::default(),
            ready: ReadyConnections::default(),
            reserve: accept::reserve(),
            last: 0,
        })
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
        if let Some(pod) = &connection.pod {
            decrement(&mut self.by_pod, pod.clone());
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
        let peer = connection.and_then(|connection| connection.peer.as_ref());
        let pod = peer.map_or_else(|| Err("nothing is known of the peer".to_owned()), Peer::pod);
        let PodCgroup { uid, container } = pod.map_err(Reason::NotAllowed)?;
        match clients.find_by_pod(&uid) {
            Some(client) => Ok(PeerClient { client, container }),
            None => Err(Reason::UnknownPod { uid, waited_ms: 0 }),
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
            tracing::warn!(peer = %connection.label, %error, "requests of a memory channel are not read first");
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
