//! The daemon's loop: sleep, compute, answer.

use super::config::DaemonConfig;
use super::gpu::Gpu;
use super::locks::Locks;
use super::peer::Peer;
use crate::engine::OwnerId;
use crate::fault::Fault;
use crate::rm::FileId;
use crate::wire::message::{Answer, GpuInfo, LockFailure, Request, VERSION};
use crate::wire::region::Region;
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

/// What a sleep ended with.
struct Awake {
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

/// Whom a descriptor that is waited for belongs to.
enum Whose {
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
        // Like the device files of a GPU: whoever can see it may use it, also without being root.
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
        // The default slack of 50 µs would be added to every wait of a client.
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
            // Before the peers: what a closed file held is free when somebody asks.
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
        // The clock first: what is submitted after this moment belongs to the next step.
        let now = monotonic_ns();
        self.gpu.drain();
        self.gpu.step(now);
    }

    /// Sleeps until something is to be done.
    fn sleep(&mut self) -> io::Result<Awake> {
        self.compute();
        self.gpu.park();
        let timeout = if self.gpu.drain() {
            Some(Duration::ZERO)
        } else {
            let now = monotonic_ns();
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
        let mut whose = Vec::new();
        for (key, peer) in &self.peers {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, peer.is_behind());
            fds.push(PollFd::new(peer.socket.as_fd(), flags));
            whose.push(Whose::Peer(*key));
            if let Some(pidfd) = &peer.pidfd {
                fds.push(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN));
                whose.push(Whose::Process(*key));
            }
        }
        for (file, socket) in self.gpu.files.sockets() {
            fds.push(PollFd::new(socket, PollFlags::POLLIN));
            whose.push(Whose::File(file));
        }
        match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let hit =
            |fd: &PollFd<'_>, flags: PollFlags| fd.revents().is_some_and(|events| events.intersects(flags));
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let mut awake = Awake {
            accept: hit(&fds[0], readable),
            stop: hit(&fds[2], readable),
            readable: Vec::new(),
            writable: Vec::new(),
            ended: Vec::new(),
            files: Vec::new(),
        };
        let poked = hit(&fds[1], readable);
        for (fd, whose) in fds[fixed..].iter().zip(whose) {
            if hit(fd, readable) {
                match whose {
                    Whose::Peer(key) => awake.readable.push(key),
                    Whose::Process(key) => awake.ended.push(key),
                    Whose::File(file) => awake.files.push(file),
                }
            }
            if let Whose::Peer(key) = whose
                && hit(fd, PollFlags::POLLOUT)
            {
                awake.writable.push(key);
            }
        }
        drop(fds);
        self.gpu.unpark();
        if poked {
            // Not readable any more only if somebody else read it, and nobody does.
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

    /// Answers everything that a peer has asked.
    fn serve(&mut self, key: u64) {
        let stays = self.serve_all(key).unwrap_or_else(|error| {
            let pid = self.peers.get(&key).map_or(0, |peer| peer.pid);
            tracing::warn!("connection of process {pid} closed: {error}");
            false
        });
        if !stays {
            self.hang_up(key);
        }
    }

    fn serve_all(&mut self, key: u64) -> io::Result<bool> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(true) };
        let stays = peer.receive()?;
        while let Some(request) = self.peers.get_mut(&key).map_or(Ok(None), Peer::request)? {
            if let Request::Hello { version, label } = request {
                self.hello(key, version, &label)?;
                continue;
            }
            if let Request::OpenControl = request {
                self.open_control(key)?;
                continue;
            }
            let who = (key, self.peers.get(&key).map_or(u32::MAX, |peer| peer.uid));
            match request {
                Request::Lock { pid, timeout_ms } => {
                    self.locks.lock(&self.gpu, who, pid, timeout_ms, monotonic_ns());
                    continue;
                }
                Request::Unlock { pid } => {
                    self.locks.unlock(&self.gpu, who, pid, monotonic_ns());
                    continue;
                }
                _ => {}
            }
            let is_locked_out = request.needs_driver() && self.gpu.rm.busy_until() > monotonic_ns();
            let answer = self.answer(key, request);
            if is_locked_out {
                self.locks.answer(self.gpu.rm.busy_until(), key, answer);
                continue;
            }
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.answer(&answer)?;
            }
        }
        Ok(stays)
    }

    fn hello(&mut self, key: u64, version: u32, label: &str) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        if version != VERSION || peer.said_hello {
            let why = format!("hello with version {version}, the daemon's is {VERSION}, and it is said once");
            return peer.answer(&Answer::Refused { why });
        }
        if let Some(fault) = self.gpu.fault.filter(Fault::stops_work) {
            return peer.answer(&Answer::Refused { why: format!("out of order since Xid {}", fault.xid) });
        }
        let (region, fd) = Region::create()?;
        peer.said_hello = true;
        let info = info(&self.gpu);
        peer.answer_with(&Answer::Gpu(info), &[fd.as_fd(), self.poke.as_fd()])?;
        self.gpu.attach(key, (peer.pid, peer.uid), label, region);
        Ok(())
    }

    fn open_control(&mut self, key: u64) -> io::Result<()> {
        let opened = self.gpu.open_control(key);
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        match opened {
            Ok(file) => peer.answer_with(&Answer::Done, &[file.as_fd()]),
            Err(error) => {
                peer.answer(&Answer::Refused { why: format!("no file of the control device: {error}") })
            }
        }
    }

    fn answer(&mut self, key: u64, request: Request) -> Answer {
        let refused = |why: &str| Answer::Refused { why: why.to_owned() };
        let engine = &mut self.gpu.engine;
        match request {
            Request::Gpu => return Answer::Gpu(info(&self.gpu)),
            Request::Ledger => return Answer::Ledger(Box::new(engine.ledger())),
            Request::Window { from_ns, to_ns } => {
                return Answer::Window(engine.account().window(from_ns, to_ns));
            }
            Request::Timeline { from_ns, to_ns } => {
                return Answer::Timeline(engine.account().timeline(from_ns, to_ns));
            }
            Request::Inject { xid } => {
                self.inject(xid);
                return Answer::Done;
            }
            Request::Heal => {
                self.gpu.fault = None;
                return Answer::Done;
            }
            Request::Listen => {
                if let Some(peer) = self.peers.get_mut(&key) {
                    peer.listens = true;
                }
                return Answer::Done;
            }
            Request::LockState { pid } => {
                return match self.gpu.lock_state(pid) {
                    Some((_, is_locked)) => Answer::Number(is_locked.into()),
                    None => Answer::NotLocked(LockFailure::NoSuchProcess),
                };
            }
            Request::Memory => {
                return Answer::Memory {
                    free: engine.account().free_bytes(),
                    total: self.gpu.config.gpu.memory_bytes,
                };
            }
            _ => {}
        }
        let Some(owner): Option<OwnerId> = self.gpu.tenant(key).map(|tenant| tenant.owner) else {
            return refused("say hello first");
        };
        let account = self.gpu.engine.account_mut();
        match request {
            Request::Allocate { bytes } if account.allocate(owner, bytes) => Answer::Done,
            Request::Allocate { .. } => Answer::OutOfMemory,
            Request::Free { bytes } => {
                account.free(owner, bytes);
                Answer::Done
            }
            Request::Name { name } => Answer::Number(account.name(owner, &name) as u64),
            Request::OpenContext { .. } if !self.gpu.takes(key) => Answer::Unavailable,
            Request::OpenContext { control } => {
                self.gpu.open_context(key, control).map_or(Answer::OutOfMemory, Answer::Number)
            }
            Request::CloseContext { group } if self.gpu.close_context(key, group) => Answer::Done,
            Request::CloseContext { .. } => refused("no such context"),
            Request::AddGraph { nodes } => {
                self.gpu.add_graph(key, nodes).map_or_else(|| refused("not a graph"), Answer::Number)
            }
            Request::DropGraph { graph } => {
                self.gpu.drop_graph(key, graph);
                Answer::Done
            }
            _ => refused("out of place"),
        }
    }

    /// Something goes wrong: those who listen are told, and whoever used the GPU may lose it.
    fn inject(&mut self, xid: u64) {
        let new = Fault::of_xid(xid);
        let stops_work = new.is_some_and(|fault| fault.stops_work());
        // A lesser fault does not make a GPU work again.
        let is_worse = stops_work || !self.gpu.fault.is_some_and(|fault| fault.stops_work());
        self.gpu.fault = new.filter(|_| is_worse).or(self.gpu.fault);
        let keys: Vec<u64> = self.peers.keys().copied().collect();
        for key in keys {
            let Some(peer) = self.peers.get_mut(&key) else { continue };
            let is_deaf = peer.listens && peer.answer(&Answer::Xid { code: xid }).is_err();
            if is_deaf || (stops_work && peer.said_hello) {
                self.hang_up(key);
            }
        }
    }

    fn hang_up(&mut self, key: u64) {
        if self.peers.remove(&key).is_some() {
            self.locks.cancel(&self.gpu, key);
            self.gpu.detach(key);
        }
    }
}

fn info(gpu: &Gpu) -> GpuInfo {
    let config = &gpu.config;
    GpuInfo {
        name: config.gpu.name.clone(),
        uuid: config.uuid(),
        memory_bytes: config.gpu.memory_bytes,
        pci: config.pci(),
        numa: config.gpu.numa,
        links: config.gpu.links.clone(),
        is_mig: config.gpu.is_mig,
        has_mem_ops: config.gpu.has_mem_ops,
        driver_version: config.gpu.driver_version.clone(),
        compute_mode: config.gpu.compute_mode,
        is_mps: config.gpu.is_mps,
        fault: gpu.fault,
    }
}
