//! The poller: which descriptors the event loop waits for, and which event each of them stands for.

use crate::connections::ConnectionId;
use crate::error::{Attempt, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sluice_core::ProcessId;
use std::os::fd::AsFd;

/// The most events taken at once.
const MAX_EVENTS: usize = 64;

/// The two highest bits of a registration tell what kind of descriptor it is, the others are the id.
const KIND_SHIFT: u32 = 62;
const ID_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// A descriptor that the loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    UnixListener,
    TcpListener,
    Timer,
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
            (0, _) => Self::Signal,
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

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poller(Epoll);

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).attempt("epoll_create")?))
    }

    pub(crate) fn add(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.0.add(fd, EpollEvent::new(flags, source.encode()))
    }

    pub(crate) fn modify(&self, fd: impl AsFd, source: Source, flags: EpollFlags) -> nix::Result<()> {
        self.0.modify(fd, &mut EpollEvent::new(flags, source.encode()))
    }

    /// Stops waiting for a descriptor. Closing it does not suffice: another process may hold a copy. One that was never added is
    /// ignored.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.0.delete(fd);
    }

    /// The next events; none if a signal interrupted the wait or `timeout` has passed.
    pub(crate) fn wait(&self, timeout: EpollTimeout) -> Result<Vec<Event>> {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let count = match self.0.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error).attempt("epoll_wait"),
        };
        let decode =
            |event: &EpollEvent| Event { source: Source::decode(event.data()), flags: event.events() };
        Ok(events.iter().take(count).map(decode).collect())
    }
}

#[cfg(test)]
mod tests;
