//! The socket to the daemon: one request, one answer.

use crate::wire::message::{self, Answer, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(super) struct Link {
    socket: UnixStream,
    incoming: Vec<u8>,
}

impl Link {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { socket: UnixStream::connect(socket)?, incoming: Vec::new() })
    }

    pub(super) fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        Ok(self.ask_for_fds(request)?.0)
    }

    /// The next message that the daemon sent without a request; `None` if there is none yet.
    pub(super) fn notification(&mut self) -> io::Result<Option<Answer>> {
        loop {
            if let Some(answer) = message::take(&mut self.incoming)? {
                return Ok(Some(answer));
            }
            let mut chunk = [0; 1 << 10];
            self.socket.set_nonblocking(true)?;
            let read = self.socket.read(&mut chunk);
            self.socket.set_nonblocking(false)?;
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.incoming.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(super) fn ask_for_fds(&mut self, request: &Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.socket.write_all(&message::encode(request)?)?;
        let mut all = Vec::new();
        loop {
            let mut chunk = [0; 16 << 10];
            let (n, fds) = match sluice_sys::socket::recv_with_fds(self.socket.as_fd(), &mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.extend(fds);
            self.incoming.extend_from_slice(&chunk[..n]);
            if let Some(answer) = message::take(&mut self.incoming)? {
                return Ok((answer, all));
            }
        }
    }

    pub(super) fn second_descriptor(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }
}

/// Whether the other side has closed the connection.
pub(super) fn has_hung_up(socket: &UnixStream) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
        && fds[0].revents().is_some_and(|events| events.intersects(gone))
}
