//! One GPU's socket: its connections, requests and answers.

mod requests;

use super::DaemonConfig;
use super::gpu::Gpu;
use super::locks::Locks;
use super::peer::Peer;
use crate::rm::{ClientNumbers, FileId};
use crate::wire::message::Answer;
use nix::poll::PollFlags;
use nix::sys::eventfd::EventFd;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

pub(super) struct Server {
    pub(super) gpu: Gpu,
    listener: UnixListener,
    wakeup: EventFd,
    peers: BTreeMap<u64, Peer>,
    locks: Locks,
    next_peer: u64,
    /// Peers that have requested an advance of the stepped clock, in nanoseconds.
    advances: Vec<(u64, u64)>,
}

/// The events of a descriptor that can be read, or whose other end is closed.
const READABLE: PollFlags = PollFlags::POLLIN.union(PollFlags::POLLHUP).union(PollFlags::POLLERR);

/// The owner of a polled descriptor of one GPU.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Wakeup,
    /// A file of the control device.
    File(FileId),
    Peer(u64),
    /// The process of a peer; readable when it has ended.
    Process(u64),
    Listener,
}

impl Server {
    /// `client_numbers` are those of the node's driver.
    pub(super) fn bind(config: DaemonConfig, client_numbers: &ClientNumbers) -> io::Result<Self> {
        match std::fs::remove_file(&config.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&config.socket)?;
        listener.set_nonblocking(true)?;
        // As with the device files of a GPU: every user that sees the socket may use it.
        std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o666))?;
        let gpu = Gpu::new(config, client_numbers);
        Ok(Self {
            gpu,
            listener,
            wakeup: super::event()?,
            peers: BTreeMap::new(),
            locks: Locks::default(),
            next_peer: 0,
            advances: Vec::new(),
        })
    }

    /// Removes the socket's file.
    pub(super) fn unbind(&self) {
        let _ = std::fs::remove_file(&self.gpu.config.socket);
    }

    /// The descriptors to poll, in the order in which their events must be served: the memory of a closed file must be free before a
    /// peer's request is.
    pub(super) fn polled(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let mut polled = vec![(Source::Wakeup, self.wakeup.as_fd(), PollFlags::POLLIN)];
        let files = self.gpu.files.sockets();
        polled.extend(files.map(|(file, socket)| (Source::File(file), socket, PollFlags::POLLIN)));
        for (key, peer) in &self.peers {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, peer.is_behind());
            polled.push((Source::Peer(*key), peer.socket.as_fd(), flags));
            let process = peer.pidfd.as_ref();
            polled.extend(process.map(|pidfd| (Source::Process(*key), pidfd.as_fd(), PollFlags::POLLIN)));
        }
        polled.push((Source::Listener, self.listener.as_fd(), PollFlags::POLLIN));
        polled
    }

    /// Serves the events of a descriptor.
    pub(super) fn serve_source(&mut self, source: Source, events: PollFlags) {
        match source {
            // Only this thread reads the eventfd, so it is readable.
            Source::Wakeup => drop(self.wakeup.read()),
            Source::File(file) => self.gpu.serve_file(file, self.gpu.clock.now()),
            Source::Peer(key) => {
                if events.intersects(READABLE) {
                    self.serve(key);
                }
                if self.peers.get_mut(&key).is_some_and(|peer| peer.flush().is_err()) {
                    self.hang_up(key);
                }
            }
            Source::Process(key) => self.hang_up(key),
            Source::Listener => self.accept(),
        }
    }

    /// Removes and returns the requested advances of the stepped clock: the peer, and the time in nanoseconds.
    pub(super) fn take_advances(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.advances)
    }

    /// Answers a request whose answer came later than [`serve_source`](Self::serve_source).
    pub(super) fn answer_later(&mut self, key: u64, answer: &Answer) {
        if self.peers.get_mut(&key).is_some_and(|peer| peer.answer(answer).is_err()) {
            self.hang_up(key);
        }
    }

    /// Sends the answers that are due.
    pub(super) fn deliver(&mut self) {
        let now = self.gpu.clock.now();
        self.gpu.files.deliver(now);
        for (key, answer) in self.locks.step(&self.gpu, now) {
            self.answer_later(key, &answer);
        }
    }

    /// The next time at which a process or a request that waits may have to be answered. `next` is the time of the next event of any GPU.
    pub(super) fn next_due(&self, now: u64, next: Option<u64>) -> Option<u64> {
        let timeline = next.filter(|_| self.locks.is_waiting());
        let wanted = self.gpu.next_wanted(next);
        [wanted, self.locks.next_due(&self.gpu, now), timeline].into_iter().flatten().min()
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            match Peer::new(socket) {
                Ok(peer) => {
                    self.next_peer += 1;
                    self.peers.insert(self.next_peer, peer);
                }
                Err(error) => tracing::warn!("a connection failed at once: {error}"),
            }
        }
    }
}
