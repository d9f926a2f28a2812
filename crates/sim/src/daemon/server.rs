//! The daemon's loop: sleep, compute the timeline, answer.

mod requests;

use super::config::DaemonConfig;
use super::gpu::{Drained, Gpu};
use super::locks::Locks;
use super::peer::Peer;
use crate::rm::FileId;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use sluice_sys::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

/// The daemon's state.
pub(super) struct Server {
    gpu: Gpu,
    listener: UnixListener,
    poke: EventFd,
    stop: Arc<EventFd>,
    peers: BTreeMap<u64, Peer>,
    locks: Locks,
    next_peer: u64,
}

/// The sources of events that ended a sleep.
struct ReadySources {
    accept: bool,
    stop: bool,
    /// Peers with something to read.
    readable: Vec<u64>,
    writable: Vec<u64>,
    /// Peers whose process has ended.
    ended: Vec<u64>,
    /// Files of the control device with something to read.
    files: Vec<FileId>,
}

/// The owner of a polled descriptor.
enum DescriptorOwner {
    Peer(u64),
    Process(u64),
    File(FileId),
}

impl Server {
    pub(super) fn bind(config: DaemonConfig, stop: Arc<EventFd>) -> io::Result<Self> {
        match std::fs::remove_file(&config.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&config.socket)?;
        listener.set_nonblocking(true)?;
        // As with the device files of a GPU: every user that sees the socket may use it.
        std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o666))?;
        let gpu = Gpu::new(config, monotonic_ns());
        Ok(Self {
            gpu,
            listener,
            poke: super::event()?,
            stop,
            peers: BTreeMap::new(),
            locks: Locks::default(),
            next_peer: 0,
        })
    }

    /// Serves until told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        // The default timer slack of 50 µs would be added to every wait of a client.
        if let Err(error) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("cannot set the timer slack, waits will be late: {error}");
        }
        loop {
            let awake = self.sleep()?;
            if awake.stop {
                let _ = std::fs::remove_file(&self.gpu.config.socket);
                return Ok(());
            }
            self.compute();
            // Before the peers: what a closed file had allocated must be free when a peer asks.
            for file in awake.files {
                self.gpu.serve_file(file, monotonic_ns());
            }
            self.gpu.files.deliver(monotonic_ns());
            for (key, answer) in self.locks.step(&self.gpu, monotonic_ns()) {
                if self.peers.get_mut(&key).is_some_and(|peer| peer.answer(&answer).is_err()) {
                    self.hang_up(key);
                }
            }
            for key in awake.readable {
                self.serve(key);
            }
            for key in awake.writable {
                if self.peers.get_mut(&key).is_some_and(|peer| peer.flush().is_err()) {
                    self.hang_up(key);
                }
            }
            for key in awake.ended {
                self.hang_up(key);
            }
            if awake.accept {
                self.accept();
            }
        }
    }

    /// Brings the timeline to the present.
    fn compute(&mut self) {
        // The clock is read first: commands submitted after this moment belong to the next step.
        let now = monotonic_ns();
        self.gpu.drain();
        self.gpu.step(now);
    }

    /// Sleeps until something is to be done.
    fn sleep(&mut self) -> io::Result<ReadySources> {
        self.compute();
        self.gpu.park();
        let drained = self.gpu.drain();
        let timeout = if drained == Drained::Urgent {
            Some(Duration::ZERO)
        } else {
            let now = monotonic_ns();
            if drained == Drained::Deferrable {
                // Clients decide by the published time of the next event, which does not include these commands yet.
                self.gpu.step(now);
            }
            let timeline = if self.locks.is_waiting() { self.gpu.engine.next_event() } else { None };
            let wanted = [self.gpu.next_wanted(), self.locks.next_due(now), timeline];
            let next = wanted.into_iter().flatten().min();
            next.map(|at| Duration::from_nanos(at.saturating_sub(now)))
        };
        let mut fds = vec![
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.poke.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
        ];
        let fixed = fds.len();
        let mut owners = Vec::new();
        for (key, peer) in &self.peers {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, peer.is_behind());
            fds.push(PollFd::new(peer.socket.as_fd(), flags));
            owners.push(DescriptorOwner::Peer(*key));
            if let Some(pidfd) = &peer.pidfd {
                fds.push(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN));
                owners.push(DescriptorOwner::Process(*key));
            }
        }
        for (file, socket) in self.gpu.files.sockets() {
            fds.push(PollFd::new(socket, PollFlags::POLLIN));
            owners.push(DescriptorOwner::File(file));
        }
        match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let hit =
            |fd: &PollFd<'_>, flags: PollFlags| fd.revents().is_some_and(|events| events.intersects(flags));
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let mut awake = ReadySources {
            accept: hit(&fds[0], readable),
            stop: hit(&fds[2], readable),
            readable: Vec::new(),
            writable: Vec::new(),
            ended: Vec::new(),
            files: Vec::new(),
        };
        let poked = hit(&fds[1], readable);
        for (fd, owner) in fds[fixed..].iter().zip(owners) {
            if hit(fd, readable) {
                match owner {
                    DescriptorOwner::Peer(key) => awake.readable.push(key),
                    DescriptorOwner::Process(key) => awake.ended.push(key),
                    DescriptorOwner::File(file) => awake.files.push(file),
                }
            }
            if let DescriptorOwner::Peer(key) = owner
                && hit(fd, PollFlags::POLLOUT)
            {
                awake.writable.push(key);
            }
        }
        drop(fds);
        self.gpu.unpark();
        if poked {
            // Only this thread reads the eventfd, so it is readable.
            let _ = self.poke.read();
        }
        Ok(awake)
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
