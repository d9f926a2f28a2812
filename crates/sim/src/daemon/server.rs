//! The daemon's loop: sleep, compute the timeline, answer.

mod requests;

use super::gpu::{Drained, Gpu};
use super::locks::Locks;
use super::peer::Peer;
use super::{Clock, DaemonConfig};
use crate::rm::FileId;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Server {
    gpu: Gpu,
    listener: UnixListener,
    wakeup: EventFd,
    stop: Arc<EventFd>,
    peers: BTreeMap<u64, Peer>,
    locks: Locks,
    next_peer: u64,
}

/// The events of a descriptor that can be read, or whose other end is closed.
const READABLE: PollFlags = PollFlags::POLLIN.union(PollFlags::POLLHUP).union(PollFlags::POLLERR);

/// The owner of a polled descriptor.
#[derive(Debug, Clone, Copy)]
enum Source {
    Stop,
    Wakeup,
    /// A file of the control device.
    File(FileId),
    Peer(u64),
    /// The process of a peer; readable when it has ended.
    Process(u64),
    Listener,
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
        let gpu = Gpu::new(config);
        Ok(Self {
            gpu,
            listener,
            wakeup: super::event()?,
            stop,
            peers: BTreeMap::new(),
            locks: Locks::default(),
            next_peer: 0,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        // The default timer slack of 50 µs would be added to every wait of a client.
        if let Err(error) = nix::sys::prctl::set_timerslack(1) {
            tracing::warn!("cannot set the timer slack, waits will be late: {error}");
        }
        loop {
            let ready = self.sleep()?;
            if ready.iter().any(|(source, _)| matches!(source, Source::Stop)) {
                let _ = std::fs::remove_file(&self.gpu.config.socket);
                return Ok(());
            }
            self.compute();
            // Directly after `compute`, so that a process counts as idle only if none of its commands is left in its ring.
            self.deliver();
            // In the order of `Source`: the memory of a closed file must be free before a peer's request is served.
            for (source, events) in ready {
                match source {
                    Source::Stop => {}
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
        }
    }

    /// Sends the answers that are due.
    fn deliver(&mut self) {
        let now = self.gpu.clock.now();
        self.gpu.files.deliver(now);
        for (key, answer) in self.locks.step(&self.gpu, now) {
            if self.peers.get_mut(&key).is_some_and(|peer| peer.answer(&answer).is_err()) {
                self.hang_up(key);
            }
        }
    }

    /// Moves a stepped clock by `ns`, from one time to the next at which a real clock would have woken the daemon. `false` if
    /// the clock is real.
    fn advance(&mut self, ns: u64) -> bool {
        let Clock::Stepped { mut now } = self.gpu.clock else { return false };
        let end = now.saturating_add(ns);
        // What is in the rings was submitted before this request.
        self.gpu.drain();
        self.gpu.step(now);
        self.deliver();
        while now < end {
            now = self.next_due(now).filter(|at| (now + 1..end).contains(at)).unwrap_or(end);
            self.gpu.clock = Clock::Stepped { now };
            self.gpu.step(now);
            self.deliver();
        }
        true
    }

    /// The next time at which a process or a request that waits may have to be answered.
    fn next_due(&mut self, now: u64) -> Option<u64> {
        let timeline = if self.locks.is_waiting() { self.gpu.engine.next_event() } else { None };
        [self.gpu.next_wanted(), self.locks.next_due(&self.gpu, now), timeline].into_iter().flatten().min()
    }

    /// Brings the timeline to the present.
    fn compute(&mut self) {
        // The clock is read first: commands submitted after this moment belong to the next step.
        let now = self.gpu.clock.now();
        self.gpu.drain();
        self.gpu.step(now);
    }

    /// Sleeps until an event arrives or the timeline has to be computed. Returns the sources of events, in the order of
    /// [`Source`].
    fn sleep(&mut self) -> io::Result<Vec<(Source, PollFlags)>> {
        self.compute();
        self.gpu.park();
        let drained = self.gpu.drain();
        let timeout = if drained == Drained::Urgent {
            Some(Duration::ZERO)
        } else {
            let now = self.gpu.clock.now();
            if drained == Drained::Deferrable {
                // Clients decide by the published time of the next event, which does not include these commands yet.
                self.gpu.step(now);
            }
            self.next_due(now).and_then(|at| self.gpu.clock.until(at))
        };
        let mut polled = vec![
            (Source::Stop, self.stop.as_fd(), PollFlags::POLLIN),
            (Source::Wakeup, self.wakeup.as_fd(), PollFlags::POLLIN),
        ];
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
        let mut fds: Vec<_> = polled.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags)).collect();
        match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().zip(&fds).map(|((source, ..), fd)| (*source, fd.revents()));
        let ready =
            ready.filter_map(|(source, events)| Some((source, events.filter(|events| !events.is_empty())?)));
        let ready = ready.collect();
        self.gpu.unpark();
        Ok(ready)
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
