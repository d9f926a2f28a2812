//! One connection: a socket, the frame that is coming in, and the role of the connection.

use crate::party::Party;
use crate::peer::Peer;
use crate::reason::Reason;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, getpeername, recv, setsockopt, sockopt};
use sluice_comm::attach::MAX_DESCRIPTORS;
use sluice_comm::{Channel, FrameReader, REQUEST_LEN, Request, Response};
use sluice_core::ProcessId;
use sluice_core::pod_cgroup::PodCgroup;
use sluice_sys::socket::{self, Received, send_with_fds};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The most descriptors that one frame may carry.
const MAX_FDS: usize = 1 + MAX_DESCRIPTORS;

/// Why no client is found for a peer of which the kernel reports nothing.
pub(super) const UNKNOWN_PEER: &str = "nothing is known of the peer";

/// How the peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// All request types; unknown peers are closed.
    Unix,
    /// Gemini's protocol only; silent to unknown names.
    Tcp,
}

/// What a connection serves as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has not sent a valid request.
    New,
    /// Its attach waits until its pod is a client.
    Pending,
    /// A channel of an attached process.
    Attached(ProcessId, Channel),
    /// A peer of the old protocol, which counts as a process.
    Legacy(ProcessId),
}

/// The result of reading.
pub(crate) enum Incoming {
    /// A request, and the descriptors that came with it.
    Request(Request, Vec<OwnedFd>),
    /// Nothing more for the moment.
    Nothing,
    /// The peer has closed the connection between two frames.
    End,
}

/// One connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    pub(crate) transport: Transport,
    pub(crate) role: Role,
    /// The process at the other end, until the connection belongs to a known process.
    pub(crate) peer: Option<Peer>,
    /// The pid at the other end, if the kernel reports it.
    pub(crate) pid: Option<i32>,
    /// The user at the other end, if the kernel reports it.
    uid: Option<u32>,
    /// The pod and container of the peer by its cgroup, where peers are recognised by that; or why it has none.
    pub(super) pod: Result<PodCgroup, String>,
    /// For logs: process or address.
    pub(crate) label: String,
    /// It is logged already that it gets no answers.
    pub(crate) silence_logged: bool,
    frames: FrameReader<REQUEST_LEN>,
    fds: Vec<OwnedFd>,
}

impl Connection {
    /// A connection over TCP: the kernel reports nothing of the process at its other end.
    pub(super) fn over_tcp(socket: OwnedFd) -> Self {
        // An answer is one small segment for which the peer waits. Without the option it is only later.
        let _ = setsockopt(&socket, sockopt::TcpNoDelay, &true);
        let address = getpeername::<SockaddrStorage>(socket.as_raw_fd());
        let label = address.map_or_else(|_| "tcp".to_owned(), |address| format!("tcp {address}"));
        Self::new(socket, Transport::Tcp, None, Err(UNKNOWN_PEER.to_owned()), label)
    }

    /// A connection over the unix socket. `by_cgroup`: the peer is recognised by its pod.
    pub(super) fn over_unix(socket: OwnedFd, peer: Peer, by_cgroup: bool) -> Self {
        let label = format!("pid {} uid {}", peer.credentials.pid, peer.credentials.uid);
        let pod = if by_cgroup { peer.pod() } else { Err("peers are recognised by their names".to_owned()) };
        Self::new(socket, Transport::Unix, Some(peer), pod, label)
    }

    fn new(
        socket: OwnedFd,
        transport: Transport,
        peer: Option<Peer>,
        pod: Result<PodCgroup, String>,
        label: String,
    ) -> Self {
        let (frames, fds) = (FrameReader::new(), Vec::new());
        let pid = peer.as_ref().map(|peer| peer.credentials.pid).filter(|pid| *pid > 0);
        let uid = peer.as_ref().map(|peer| peer.credentials.uid);
        Self {
            socket,
            transport,
            role: Role::New,
            peer,
            pid,
            uid,
            pod,
            label,
            silence_logged: false,
            frames,
            fds,
        }
    }

    /// The uid of the pod that it counts for. A peer in no pod is refused with its first request, so it is not counted.
    pub(super) fn pod_uid(&self) -> Option<&str> {
        self.pod.as_ref().ok().map(|pod| pod.uid.as_str())
    }

    /// The party that it counts for while it belongs to no client.
    pub(crate) fn party(&self) -> Party {
        Party::peer(self.pod_uid(), self.pid, self.uid)
    }

    /// Whether its socket holds nothing that was not read, except the end of the connection.
    pub(crate) fn is_silent(&self) -> bool {
        let peeked = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        matches!(peeked, Ok(0) | Err(Errno::EAGAIN))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads at most one frame.
    pub(crate) fn read(&mut self) -> Result<Incoming, Reason> {
        loop {
            if let Some(frame) = self.frames.next() {
                let request = Request::decode(&frame)?;
                return Ok(Incoming::Request(request, std::mem::take(&mut self.fds)));
            }
            match socket::recv(self.socket.as_fd(), self.frames.spare()) {
                Ok(Received { len: 0, .. }) if self.frames.is_mid_frame() => {
                    return Err(Reason::ClosedMidFrame);
                }
                Ok(Received { len: 0, .. }) => return Ok(Incoming::End),
                Ok(Received { len, fds, lacks_fds }) => {
                    self.fds.extend(fds);
                    // At least one more was sent than this process could have.
                    let found = self.fds.len() + usize::from(lacks_fds);
                    if found > MAX_FDS {
                        let why = format!("{found} descriptors, expected {MAX_FDS} at most");
                        return Err(Reason::BadPayload(why));
                    }
                    if lacks_fds {
                        return Err(Reason::OutOfDescriptors);
                    }
                    self.frames.filled(len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Incoming::Nothing),
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionReset && !self.frames.is_mid_frame() =>
                {
                    return Ok(Incoming::End);
                }
                Err(_) if self.frames.is_mid_frame() => return Err(Reason::ClosedMidFrame),
                Err(error) => return Err(Reason::Socket(error)),
            }
        }
    }

    /// Sends one answer, whole or not at all. A peer that has closed the connection is not an error: reading will report it.
    pub(crate) fn send(&self, response: &Response, fds: &[BorrowedFd<'_>]) -> Result<(), Reason> {
        let bytes = response.encode();
        match send_with_fds(self.socket.as_fd(), &bytes, fds) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) => Err(Reason::NotReading),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Reason::NotReading),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Ok(())
            }
            Err(error) => Err(Reason::Socket(error)),
        }
    }
}
