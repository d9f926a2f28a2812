//! One connection: decodes requests from received bytes, and sends answers.

use crate::wire::message::{self, Answer, Request};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

pub(super) struct Peer {
    pub(super) socket: UnixStream,
    /// Readable when the process has ended. The socket may stay open in its children.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) pid: i32,
    pub(super) uid: u32,
    /// Whether the peer has sent a hello, and so is a process that uses the GPU.
    pub(super) is_process: bool,
    /// Whether the peer is to be notified of Xids.
    pub(super) listens: bool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Peer {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let peer = sluice_sys::socket::peer_credentials(socket.as_fd())?;
        let pidfd = sluice_sys::socket::peer_pidfd(socket.as_fd()).ok();
        Ok(Self {
            socket,
            pidfd,
            pid: peer.pid,
            uid: peer.uid,
            is_process: false,
            listens: false,
            incoming: Vec::new(),
            outgoing: Vec::new(),
        })
    }

    /// Reads all available bytes. Returns `false` if the peer has closed the connection.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(n) => self.incoming.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn request(&mut self) -> io::Result<Option<Request>> {
        message::take(&mut self.incoming)
    }

    /// Sends an answer. Bytes that the socket does not accept yet are kept.
    pub(super) fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        self.outgoing.extend(message::encode(answer)?);
        self.flush()
    }

    /// Sends an answer with descriptors; the first message on a connection.
    pub(super) fn answer_with(&mut self, answer: &Answer, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message::encode(answer)?;
        let sent = sluice_sys::socket::send_with_fds(self.socket.as_fd(), &bytes, fds)?;
        self.outgoing.extend(bytes.get(sent..).unwrap_or_default());
        self.flush()
    }

    pub(super) fn is_behind(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
