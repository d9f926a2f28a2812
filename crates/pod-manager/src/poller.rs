//! The poller: which descriptors the event loop waits for, and which event each of them stands for.

use crate::error::{Attempt, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sluice_core::{ConnectionId, ProcessId};
use std::os::fd::AsFd;

/// The most events taken at once, of memory channels and of everything else. A connection is read when its client's turn comes, which needs
/// its event: with 500 ready connections of another client it is among the next ones.
const MAX_EVENTS: usize = 512;

/// The two highest bits of a registration tell what kind of descriptor it is, the others are the id.
const KIND_SHIFT: u32 = 62;
const ID_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// A descriptor that the loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    UnixListener,
    TcpListener,
    Timer,
    /// A memory channel is ready: its event is reported as well.
    MemoryChannels,
    /// The pidfd of a process that has host memory.
    HostMemory,
    /// The eventfd behind messages of other threads.
    Messages,
    Signal,
    Connection(ConnectionId),
    /// The wake-up eventfd of a process.
    Wakeup(ProcessId),
    /// The pidfd of a process.
    ProcessEnd(ProcessId),
}

impl Source {
    const fn encode(self) -> u64 {
        let (kind, id) = match self {
            Self::UnixListener => (0, 0),
            Self::TcpListener => (0, 1),
            Self::Timer => (0, 2),
            Self::Messages => (0, 3),
            Self::Signal => (0, 4),
            Self::MemoryChannels => (0, 5),
            Self::HostMemory => (0, 6),
            Self::Connection(ConnectionId(id)) => (1, id),
            Self::Wakeup(ProcessId(id)) => (2, id),
            Self::ProcessEnd(ProcessId(id)) => (3, id),
        };
        kind << KIND_SHIFT | id
    }

    const fn decode(data: u64) -> Self {
        let id = data & ID_MASK;
        match (data >> KIND_SHIFT, id) {
            (0, 0) => Self::UnixListener,
            (0, 1) => Self::TcpListener,
            (0, 2) => Self::Timer,
            (0, 3) => Self::Messages,
            (0, 4) => Self::Signal,
            (0, 5) => Self::MemoryChannels,
            (0, _) => Self::HostMemory,
            (1, _) => Self::Connection(ConnectionId(id)),
            (2, _) => Self::Wakeup(ProcessId(id)),
            _ => Self::ProcessEnd(ProcessId(id)),
        }
    }
}

/// An event of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) source: Source,
    pub(crate) flags: EpollFlags,
}

/// Two epoll instances, of which one contains the other. A memory channel in the inner one is not behind thousands of other connections.
#[derive(Debug)]
pub(crate) struct Poller {
    all: Epoll,
    memory: Epoll,
}

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        let epoll = || Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).attempt("epoll_create");
        let poller = Self { all: epoll()?, memory: epoll()? };
        poller.add(&poller.memory.0, Source::MemoryChannels, EpollFlags::EPOLLIN).attempt("epoll_ctl")?;
        Ok(poller)
    }

    pub(crate) fn add(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.all.add(fd, EpollEvent::new(flags, source.encode()))
    }

    pub(crate) fn modify(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.all.modify(fd, &mut EpollEvent::new(flags, source.encode()))
    }

    /// From now on the events of this descriptor come before those of all others.
    pub(crate) fn prefer(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.memory.add(&fd, EpollEvent::new(flags, source.encode()))?;
        self.all.delete(&fd)
    }

    /// Stops waiting for a descriptor. Closing it does not suffice: another process may hold a copy. One that was never added is
    /// ignored.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        if self.all.delete(&fd).is_err() {
            let _ = self.memory.delete(&fd);
        }
    }

    /// The next events, those of memory channels first; none if a signal interrupted the wait or `timeout` has passed.
    pub(crate) fn wait(&self, timeout: EpollTimeout) -> Result<Vec<Event>> {
        let others = take(&self.all, timeout)?;
        let mut events = take(&self.memory, EpollTimeout::ZERO)?;
        events.extend(others);
        Ok(events)
    }
}

fn take(epoll: &Epoll, timeout: EpollTimeout) -> Result<Vec<Event>> {
    let mut events = [EpollEvent::empty(); MAX_EVENTS];
    let count = match epoll.wait(&mut events, timeout) {
        Ok(count) => count,
        Err(nix::errno::Errno::EINTR) => 0,
        Err(error) => return Err(error).attempt("epoll_wait"),
    };
    let decode = |event: &EpollEvent| Event { source: Source::decode(event.data()), flags: event.events() };
    Ok(events.iter().take(count).map(decode).collect())
}

#[cfg(test)]
mod tests;
