//! Accepts connections, within the limits of one process, one pod and the manager.

use super::{Connection, Connections, Outcome, Transport};
use crate::io::Io;
use crate::party::Party;
use crate::poller::Source;
use crate::reason::Reason;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{SockaddrStorage, getpeername, setsockopt, sockopt};
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Response, ResponseBody, UNREAD_REQUEST_ID};
use sluice_core::ConnectionId;
use sluice_sys::socket::try_send_with_fds;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tracing::{debug, warn};

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Unix,
    Tcp,
}

/// What became of one accept.
pub(crate) enum Accepted {
    Connection(Box<Connection>),
    /// The peer has ended before it was accepted.
    PeerGone,
    /// There was no descriptor for the connection; it is closed.
    OutOfDescriptors,
    /// No connection waits.
    Nothing,
}

/// A descriptor to close when there are no more.
pub(super) fn reserve() -> Option<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from).ok()
}

/// Answers the ATTACH that a peer has sent or is about to send: there is no room. If the peer does not read it, nothing is lost: without
/// an answer it treats the manager as lost.
fn answer_no_room(socket: BorrowedFd<'_>) {
    let body = ResponseBody::Attach { status: AttachStatus::NoRoom, page_version: PAGE_VERSION };
    let _ = try_send_with_fds(socket, &Response { id: UNREAD_REQUEST_ID, body }.encode(), &[]);
}

fn set_nonblocking(socket: &OwnedFd) -> io::Result<()> {
    // A new socket has no other status flag.
    Ok(fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)?)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

impl Connections {
    /// Accepts one connection; it is not open yet.
    pub(crate) fn accept(&mut self, listener: Listener, io: &mut Io) -> Accepted {
        let socket = match self.accept_socket(listener, io) {
            Ok(socket) => socket,
            Err(outcome) => return outcome,
        };
        if listener == Listener::Tcp {
            // An answer is one small segment for which the peer waits. Without the option it is only later.
            let _ = setsockopt(&socket, sockopt::TcpNoDelay, &true);
            let address = getpeername::<SockaddrStorage>(socket.as_raw_fd());
            let label = address.map_or_else(|_| "tcp".to_owned(), |address| format!("tcp {address}"));
            let connection = Connection::new(socket, Transport::Tcp, None, label);
            return Accepted::Connection(Box::new(connection));
        }
        match self.peers.identify(socket.as_fd()) {
            Ok(peer) => {
                let label = format!("pid {} uid {}", peer.credentials.pid, peer.credentials.uid);
                // A peer in no pod is refused with its first request, so it is not counted.
                let pod = if self.by_cgroup { peer.pod().ok() } else { None };
                let mut connection = Connection::new(socket, Transport::Unix, Some(peer), label);
                connection.pod = pod.map(|pod| pod.uid);
                Accepted::Connection(Box::new(connection))
            }
            Err(error) => {
                let is_exhausted = is_out_of_descriptors(&error);
                if is_exhausted {
                    answer_no_room(socket.as_fd());
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

    fn accept_socket(&mut self, listener: Listener, io: &mut Io) -> Result<OwnedFd, Accepted> {
        // The closing thread may not have closed the last refused connection when its descriptor was wanted back.
        self.reserve = self.reserve.take().or_else(reserve);
        loop {
            let accepted = self.next_socket(listener);
            let error = match accepted.and_then(|socket| set_nonblocking(&socket).map(|()| socket)) {
                Ok(socket) => return Ok(socket),
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ECONNABORTED | Errno::EINTR) => {}
                Some(Errno::EMFILE | Errno::ENFILE) if self.reserve.take().is_some() => {
                    // Left in the queue it would wake the loop for ever.
                    if let Ok(socket) = self.next_socket(listener) {
                        if listener == Listener::Unix {
                            answer_no_room(socket.as_fd());
                        }
                        io.closer.close(socket);
                    }
                    self.reserve = reserve();
                    return Err(Accepted::OutOfDescriptors);
                }
                _ if error.kind() == io::ErrorKind::WouldBlock => return Err(Accepted::Nothing),
                _ => {
                    if let Some(dropped) = io.may_log("accept", Party::Manager) {
                        warn!(%error, dropped, "cannot accept a connection");
                    }
                    return Err(Accepted::Nothing);
                }
            }
        }
    }

    fn next_socket(&self, listener: Listener) -> io::Result<OwnedFd> {
        match listener {
            Listener::Unix => self.unix.listener.accept().map(|(stream, _)| stream.into()),
            Listener::Tcp => {
                let tcp = self.tcp.as_ref().ok_or(io::ErrorKind::WouldBlock)?;
                tcp.accept().map(|(stream, _)| stream.into())
            }
        }
    }

    /// Why a new connection has to be refused, whatever room there is.
    pub(crate) fn refusal(&self, connection: &Connection) -> Option<Reason> {
        let of_process = connection.pid.and_then(|pid| self.by_pid.get(&pid)).copied().unwrap_or(0);
        if of_process >= self.limits.of_process {
            return Some(Reason::TooManyOfProcess);
        }
        let pod = connection.pod.as_ref()?;
        let of_pod = self.by_pod.get(pod).copied().unwrap_or(0);
        (of_pod >= self.limits.of_client).then(|| Reason::TooManyOfPod(pod.clone()))
    }

    /// Whether a client that has so many connections may have a process with so many `more`.
    pub(crate) fn check_client(&self, name: &str, connections: usize, more: usize) -> Outcome {
        if connections + more <= self.limits.of_client {
            Ok(())
        } else {
            Err(Reason::TooManyOfClient(name.to_owned()))
        }
    }

    /// Answers that there is no room on a connection that is closed before it was read.
    pub(crate) fn answer_no_room(&self, connection: &Connection) {
        if connection.transport == Transport::Unix {
            answer_no_room(connection.fd());
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= self.limits.total
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
        if let Some(pod) = &connection.pod {
            *self.by_pod.entry(pod.clone()).or_default() += 1;
        }
        self.open.insert(id, connection);
    }
}
