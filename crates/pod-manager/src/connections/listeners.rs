//! The listening sockets. When descriptors run out, a connection is accepted all the same, and closed at once: left in the queue it would wake
//! the event loop for ever.

use super::Connection;
use crate::io::Io;
use crate::listen::UnixSocket;
use crate::party::Party;
use crate::poller::Source;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::EpollFlags;
use sluice_comm::page::PAGE_VERSION;
use sluice_comm::{AttachStatus, Response, ResponseBody, UNREAD_REQUEST_ID};
use sluice_sys::socket::try_send_with_fds;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::warn;

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
fn reserve() -> Option<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from).ok()
}

/// Answers the ATTACH that a peer has sent or is about to send: there is no room. If the peer does not read it, nothing is lost: without
/// an answer it treats the manager as lost.
pub(super) fn answer_no_room(socket: BorrowedFd<'_>) {
    let body = ResponseBody::Attach { status: AttachStatus::NoRoom, page_version: PAGE_VERSION };
    let _ = try_send_with_fds(socket, &Response { id: UNREAD_REQUEST_ID, body }.encode(), &[]);
}

fn set_nonblocking(socket: &OwnedFd) -> io::Result<()> {
    // A new socket has no other status flag.
    Ok(fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)?)
}

pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// The listening sockets.
pub(super) struct Listeners {
    unix: UnixSocket,
    tcp: Option<TcpListener>,
    /// Closed for a moment when descriptors run out, so that a connection can be accepted and closed.
    reserve: Option<OwnedFd>,
}

impl Listeners {
    /// Has the poller report them.
    pub(super) fn new(unix: UnixSocket, tcp: Option<TcpListener>, io: &Io) -> nix::Result<Self> {
        io.poller.add(&unix.listener, Source::UnixListener, EpollFlags::EPOLLIN)?;
        if let Some(tcp) = &tcp {
            io.poller.add(tcp, Source::TcpListener, EpollFlags::EPOLLIN)?;
        }
        Ok(Self { unix, tcp, reserve: reserve() })
    }

    /// Accepts one socket, or says why there is none.
    pub(super) fn accept(&mut self, listener: Listener, io: &mut Io) -> Result<OwnedFd, Accepted> {
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
}
