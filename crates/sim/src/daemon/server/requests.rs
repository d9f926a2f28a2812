//! Requests of peers: the hello, queries, allocations, locks and injected faults.

use super::Server;
use crate::daemon::Clock;
use crate::daemon::peer::Peer;
use crate::fault::Fault;
use crate::wire::message::{Answer, LockFailure, Request, VERSION};
use crate::wire::region::Region;
use std::io;
use std::os::fd::AsFd;

impl Server {
    pub(super) fn serve(&mut self, key: u64) {
        let is_open = self.serve_all(key).unwrap_or_else(|error| {
            let pid = self.peers.get(&key).map_or(0, |peer| peer.pid);
            tracing::warn!("connection of process {pid} closed: {error}");
            false
        });
        if !is_open {
            self.hang_up(key);
        }
    }

    fn serve_all(&mut self, key: u64) -> io::Result<bool> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(true) };
        let is_open = peer.receive()?;
        while let Some(request) = self.peers.get_mut(&key).map_or(Ok(None), Peer::request)? {
            let now = self.gpu.clock.now();
            let uid = self.peers.get(&key).map_or(u32::MAX, |peer| peer.uid);
            match request {
                Request::Hello { version, label } => self.hello(key, version, &label)?,
                Request::OpenControl => self.open_control(key)?,
                Request::Lock { pid, timeout_ms } => {
                    self.locks.lock(&self.gpu, (key, uid), pid, timeout_ms, now);
                }
                // Answered when all GPUs have been advanced.
                Request::Advance { ns } if self.gpu.clock != Clock::Real => self.advances.push((key, ns)),
                Request::Unlock { pid } => self.locks.unlock(&self.gpu, (key, uid), pid, now),
                request => {
                    let waits_for_driver = request.needs_driver() && self.gpu.rm.busy_until() > now;
                    let answer = self.answer(key, request);
                    if waits_for_driver {
                        self.locks.answer(self.gpu.rm.busy_until(), key, answer);
                    } else if let Some(peer) = self.peers.get_mut(&key) {
                        peer.answer(&answer)?;
                    }
                }
            }
        }
        Ok(is_open)
    }

    fn hello(&mut self, key: u64, version: u32, label: &str) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        if version != VERSION || peer.is_process {
            let why = format!("hello with version {version}, expected one hello with version {VERSION}");
            return peer.answer(&Answer::Refused { why });
        }
        if let Some(fault) = self.gpu.config.gpu.fault.filter(Fault::stops_work) {
            return peer.answer(&Answer::Refused { why: format!("out of order since Xid {}", fault.xid) });
        }
        let (region, fd) = Region::create()?;
        peer.is_process = true;
        let info = self.gpu.config.gpu.clone();
        peer.answer_with(&Answer::Gpu(info), &[fd.as_fd(), self.wakeup.as_fd()])?;
        self.gpu.attach(key, (peer.pid, peer.uid), label, region);
        Ok(())
    }

    fn open_control(&mut self, key: u64) -> io::Result<()> {
        let opened = self.gpu.open_control(key);
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        match opened {
            Ok(file) => peer.answer_with(&Answer::Done, &[file.as_fd()]),
            Err(error) => {
                peer.answer(&Answer::Refused { why: format!("cannot open the control device: {error}") })
            }
        }
    }

    fn answer(&mut self, key: u64, request: Request) -> Answer {
        let refused = |why: &str| Answer::Refused { why: why.to_owned() };
        let engine = &mut self.gpu.engine;
        match request {
            Request::Gpu => return Answer::Gpu(self.gpu.config.gpu.clone()),
            Request::Ledger => return Answer::Ledger(Box::new(engine.ledger())),
            Request::Advance { .. } => {
                return refused("its clock is real: only a stepped clock is advanced");
            }
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
                self.gpu.config.gpu.fault = None;
                return Answer::Done;
            }
            Request::ControlFault { fault } => {
                self.gpu.rm.set_fault(fault);
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
        let Some(owner) = self.gpu.tenant(key).map(|tenant| tenant.owner) else {
            return refused("the first request must be a hello");
        };
        let account = self.gpu.engine.account_mut();
        match request {
            Request::Allocate { bytes } if account.allocate(owner, bytes) => {
                self.gpu.engine.memory_changes(bytes);
                Answer::Done
            }
            Request::Allocate { .. } => Answer::OutOfMemory,
            Request::Free { bytes } => {
                account.free(owner, bytes);
                self.gpu.engine.memory_changes(bytes);
                Answer::Done
            }
            Request::LoadModule { bytes } if account.open_context(owner, bytes) => Answer::Done,
            Request::LoadModule { .. } => Answer::OutOfMemory,
            Request::UnloadModule { bytes } => {
                account.close_context(owner, bytes);
                Answer::Done
            }
            Request::Name { name } => Answer::Number(account.name(owner, &name) as u64),
            Request::OpenContext { .. } if !self.gpu.allows_context(key) => Answer::Unavailable,
            Request::OpenContext { control } => {
                self.gpu.open_context(key, control).map_or(Answer::OutOfMemory, Answer::Number)
            }
            Request::CloseContext { group } if self.gpu.close_context(key, group) => Answer::Done,
            Request::CloseContext { .. } => refused("the process has no such context"),
            Request::AddGraph { nodes, relaunches } => self
                .gpu
                .add_graph(key, nodes, relaunches)
                .map_or_else(|| refused("no graph of known kernels in topological order"), Answer::Number),
            Request::DropGraph { graph } => {
                self.gpu.drop_graph(key, graph);
                Answer::Done
            }
            _ => refused("unexpected request"),
        }
    }

    /// Injects a fault: listeners are notified, and processes that used the GPU may lose it.
    fn inject(&mut self, xid: u64) {
        let new = Fault::of_xid(xid);
        let stops_work = new.is_some_and(|fault| fault.stops_work());
        // A lesser fault does not repair a GPU.
        let is_worse = stops_work || !self.gpu.config.gpu.fault.is_some_and(|fault| fault.stops_work());
        self.gpu.config.gpu.fault = new.filter(|_| is_worse).or(self.gpu.config.gpu.fault);
        let keys: Vec<u64> = self.peers.keys().copied().collect();
        for key in keys {
            let Some(peer) = self.peers.get_mut(&key) else { continue };
            let has_hung_up = peer.listens && peer.answer(&Answer::Xid { code: xid }).is_err();
            if has_hung_up || (stops_work && peer.is_process) {
                self.hang_up(key);
            }
        }
    }

    pub(super) fn hang_up(&mut self, key: u64) {
        if self.peers.remove(&key).is_some() {
            self.locks.cancel(&self.gpu, key);
            self.gpu.detach(key);
        }
    }
}
