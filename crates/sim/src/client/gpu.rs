//! A process that uses the GPU.

mod progress;

use super::link::Link;
use super::stream::{Effects, StreamCommand};
use crate::engine::{Node, Work};
use crate::wire::message::{Answer, ControlGroup, GpuInfo, Request, VERSION};
use crate::wire::region::{EVENTS, Region, STREAMS};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Why the GPU refused a request.
#[derive(Debug, Error)]
pub enum GpuError {
    /// Not enough device memory is left.
    #[error("the simulated GPU is out of memory")]
    OutOfMemory,
    /// The GPU's compute mode allows no further process.
    #[error("the compute mode of the simulated GPU allows no further process")]
    Unavailable,
    /// This process uses all its streams or timed events.
    #[error("all streams or timed events of the process are in use")]
    Exhausted,
    /// The daemon has refused.
    #[error("the simulated GPU refused: {0}")]
    Refused(String),
    /// The daemon has ended.
    #[error("the connection to the simulated GPU is lost: {0}")]
    Gone(#[from] io::Error),
}

struct IdPool {
    next: usize,
    returned: Vec<usize>,
    limit: usize,
}

impl IdPool {
    fn take(&mut self) -> Option<usize> {
        self.returned.pop().or_else(|| {
            (self.next < self.limit).then(|| {
                self.next += 1;
                self.next - 1
            })
        })
    }
}

/// A connection to a simulated GPU as a process that uses it. Dropping it has the effect of the process's end.
pub struct Gpu {
    link: Mutex<Link>,
    /// A second descriptor of the socket, to detect the end of the daemon.
    liveness: UnixStream,
    pub(super) region: Region,
    wakeup: std::fs::File,
    info: GpuInfo,
    pub(super) effects: Effects,
    slots: Mutex<IdPool>,
    /// Slots of closed streams that still have work, with the number of their last command.
    retired: Mutex<Vec<(usize, u64)>>,
    events: Mutex<IdPool>,
    /// Whether a graph of this process has collective kernels.
    has_collective_graphs: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unexpected(answer: &Answer) -> GpuError {
    GpuError::Refused(format!("unexpected answer {answer:?}"))
}

impl Gpu {
    /// Connects as a process; `label` is for the ledger.
    /// Returns an error if no daemon answers at the socket, or one of another version.
    pub fn connect(socket: &Path, label: &str) -> Result<Self, GpuError> {
        let mut link = Link::open(socket)?;
        let hello = Request::Hello { version: VERSION, label: label.to_owned() };
        let (answer, fds) = link.ask_for_fds(&hello)?;
        let info = match answer {
            Answer::Gpu(info) => info,
            Answer::Refused { why } => return Err(GpuError::Refused(why)),
            answer => return Err(unexpected(&answer)),
        };
        let mut fds = fds.into_iter();
        let (Some(memory), Some(wakeup)) = (fds.next(), fds.next()) else {
            return Err(GpuError::Refused("no shared memory came with the answer".into()));
        };
        Ok(Self {
            liveness: link.second_descriptor()?,
            link: Mutex::new(link),
            region: Region::map(std::os::fd::AsFd::as_fd(&memory))?,
            wakeup: std::fs::File::from(wakeup),
            info,
            effects: Effects::default(),
            slots: Mutex::new(IdPool { next: 0, returned: Vec::new(), limit: STREAMS }),
            retired: Mutex::new(Vec::new()),
            events: Mutex::new(IdPool { next: 0, returned: Vec::new(), limit: EVENTS }),
            has_collective_graphs: AtomicBool::new(false),
        })
    }

    /// Name, identity and memory.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn ask(&self, request: &Request) -> Result<Answer, GpuError> {
        match lock(&self.link).ask(request)? {
            Answer::OutOfMemory => Err(GpuError::OutOfMemory),
            Answer::Unavailable => Err(GpuError::Unavailable),
            Answer::Refused { why } => Err(GpuError::Refused(why)),
            answer => Ok(answer),
        }
    }

    fn ask_number(&self, request: &Request) -> Result<u64, GpuError> {
        match self.ask(request)? {
            Answer::Number(number) => Ok(number),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Opens the control device: a packet socket that receives the driver's ioctls ([`sluice_nvrm::transport::wire`]).
    pub fn open_control(&self) -> Result<OwnedFd, GpuError> {
        match lock(&self.link).ask_for_fds(&Request::OpenControl)? {
            (Answer::Done, fds) => fds.into_iter().next().ok_or_else(|| unexpected(&Answer::Done)),
            (Answer::Refused { why }, _) => Err(GpuError::Refused(why)),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Opens a context and returns its number. `control` is the channel group that carries its kernels, if one was
    /// allocated over the control device.
    pub fn open_context(&self, control: Option<ControlGroup>) -> Result<u64, GpuError> {
        self.ask_number(&Request::OpenContext { control })
    }

    /// Closes a context with everything in it.
    pub fn close_context(&self, group: u64) -> Result<(), GpuError> {
        self.ask(&Request::CloseContext { group }).map(drop)
    }

    /// Allocates device memory.
    pub fn allocate(&self, bytes: u64) -> Result<(), GpuError> {
        self.ask(&Request::Allocate { bytes }).map(drop)
    }

    /// Frees device memory.
    pub fn free(&self, bytes: u64) -> Result<(), GpuError> {
        self.ask(&Request::Free { bytes }).map(drop)
    }

    /// Takes device memory for a module of a context.
    pub fn load_module(&self, bytes: u64) -> Result<(), GpuError> {
        self.ask(&Request::LoadModule { bytes }).map(drop)
    }

    /// Frees the device memory of a module.
    pub fn unload_module(&self, bytes: u64) -> Result<(), GpuError> {
        self.ask(&Request::UnloadModule { bytes }).map(drop)
    }

    /// Free and total device memory in bytes.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        match self.ask(&Request::Memory)? {
            Answer::Memory { free, total } => Ok((free, total)),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Index of a kernel's name, for [`crate::engine::Work::Kernel`].
    pub fn name(&self, name: &str) -> Result<usize, GpuError> {
        let number = self.ask_number(&Request::Name { name: name.to_owned() })?;
        usize::try_from(number).map_err(|_| GpuError::Exhausted)
    }

    /// Registers a graph, in topological order, and returns its number. `relaunches`: once launched it begins again at its end, for ever.
    pub fn add_graph(&self, nodes: Vec<Node>, relaunches: bool) -> Result<u64, GpuError> {
        if nodes.iter().any(|node| matches!(node.work, Work::Collective { .. })) {
            self.has_collective_graphs.store(true, Ordering::Relaxed);
        }
        self.ask_number(&Request::AddGraph { nodes, relaunches })
    }

    /// Whether a command may have a collective kernel.
    pub(super) fn has_collective(&self, command: StreamCommand) -> bool {
        match command {
            StreamCommand::Work(Work::Collective { .. }) => true,
            StreamCommand::Graph(_) => self.has_collective_graphs.load(Ordering::Relaxed),
            _ => false,
        }
    }

    /// Removes a graph. It must not be launched again.
    pub fn drop_graph(&self, graph: u64) -> Result<(), GpuError> {
        self.ask(&Request::DropGraph { graph }).map(drop)
    }

    /// Reserves a word for an event's time. Returns [`GpuError::Exhausted`] if there is none.
    pub fn open_event(&self) -> Result<usize, GpuError> {
        lock(&self.events).take().ok_or(GpuError::Exhausted)
    }

    /// Releases an event's word.
    pub fn close_event(&self, event: usize) {
        lock(&self.events).returned.push(event);
    }

    /// The time at which an event was last reached, in nanoseconds of CLOCK_MONOTONIC; 0 for never.
    pub fn event_time(&self, event: usize) -> u64 {
        self.region.time(event)
    }

    /// A slot for a new stream, or that of a former stream that has completed.
    pub(super) fn take_slot(&self) -> Result<usize, GpuError> {
        let done =
            lock(&self.retired).extract_if(.., |(slot, last)| self.region.completed(*slot) >= *last).next();
        match done {
            Some((slot, _)) => Ok(slot),
            None => lock(&self.slots).take().ok_or(GpuError::Exhausted),
        }
    }

    /// Releases the slot of a closed stream once its last command, `last`, is completed.
    pub(super) fn retire(&self, slot: usize, last: u64) {
        lock(&self.retired).push((slot, last));
    }
}
