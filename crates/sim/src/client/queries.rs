//! Queries of a GPU, faults and locks, and notification of faults.
//!
//! Each query makes a connection of its own and returns an error if no daemon answers at the socket.

use super::link::Link;
use crate::fault::ControlFault;
use crate::ledger::{Interval, Ledger, Window};
use crate::wire::message::{Answer, GpuInfo, LockFailure, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes a request on a new connection. An answer that is not listed is an error.
macro_rules! ask {
    ($socket:expr, $request:expr, $($answer:pat => $result:expr),+) => {
        match Link::open($socket)?.ask(&$request)? {
            $($answer => Ok($result),)+
            answer => Err(unexpected(&answer)),
        }
    };
}

fn unexpected(answer: &Answer) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the simulated GPU answered {answer:?}"))
}

/// The whole ledger at this moment.
pub fn ledger(socket: &Path) -> io::Result<Ledger> {
    ask!(socket, Request::Ledger, Answer::Ledger(ledger) => *ledger)
}

/// Moves the stepped clock of a GPU by `ns`; the next ledger shows everything up to the new time. A real clock is not moved: an
/// error.
pub fn advance(socket: &Path, ns: u64) -> io::Result<()> {
    ask!(socket, Request::Advance { ns }, Answer::Done => ())
}

/// Use of the GPU between two times of CLOCK_MONOTONIC, in nanoseconds.
pub fn window(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Window> {
    ask!(socket, Request::Window { from_ns, to_ns }, Answer::Window(window) => window)
}

/// The intervals in which each process had the GPU, between two times of CLOCK_MONOTONIC, in nanoseconds.
pub fn timeline(socket: &Path, from_ns: u64, to_ns: u64) -> io::Result<Vec<Interval>> {
    ask!(socket, Request::Timeline { from_ns, to_ns }, Answer::Timeline(intervals) => intervals)
}

/// Name, identity, memory and condition of the GPU. The caller does not become a process that uses it.
pub fn gpu_info(socket: &Path) -> io::Result<GpuInfo> {
    ask!(socket, Request::Gpu, Answer::Gpu(info) => info)
}

/// Injects the fault that the driver would report by this Xid.
pub fn inject(socket: &Path, xid: u64) -> io::Result<()> {
    ask!(socket, Request::Inject { xid }, Answer::Done => ())
}

/// Repairs all faults of the GPU.
pub fn heal(socket: &Path) -> io::Result<()> {
    ask!(socket, Request::Heal, Answer::Done => ())
}

/// Sets or removes a fault of the driver's controls of channel groups.
pub fn set_control_fault(socket: &Path, fault: Option<ControlFault>) -> io::Result<()> {
    ask!(socket, Request::ControlFault { fault }, Answer::Done => ())
}

/// Locks a process at its next driver call, and waits until it has no work in progress on this GPU. `timeout_ms` 0
/// means no limit. The inner error is the reason why the process was not locked.
pub fn lock(socket: &Path, pid: i32, timeout_ms: u32) -> io::Result<Result<(), LockFailure>> {
    let request = Request::Lock { pid, timeout_ms };
    ask!(socket, request, Answer::Done => Ok(()), Answer::NotLocked(failure) => Err(failure))
}

/// Unlocks a process. The inner error is the reason why it was not unlocked.
pub fn unlock(socket: &Path, pid: i32) -> io::Result<Result<(), LockFailure>> {
    ask!(socket, Request::Unlock { pid }, Answer::Done => Ok(()), Answer::NotLocked(failure) => Err(failure))
}

/// Whether a process is locked; `None` if it does not use this GPU.
pub fn is_locked(socket: &Path, pid: i32) -> io::Result<Option<bool>> {
    ask!(socket, Request::LockState { pid }, Answer::Number(n) => Some(n != 0), Answer::NotLocked(_) => None)
}

/// A receiver of every Xid of one GPU that occurs after the receiver's creation.
pub struct Listener(Link);

/// A notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerEvent {
    /// An Xid.
    Xid(u64),
    /// The daemon has ended; no further event follows.
    Disconnected,
}

impl Listener {
    /// Opens a connection that receives notifications.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let mut link = Link::open(socket)?;
        match link.ask(&Request::Listen)? {
            Answer::Done => Ok(Self(link)),
            answer => Err(unexpected(&answer)),
        }
    }

    fn poll_event(&mut self) -> Option<ListenerEvent> {
        match self.0.notification() {
            Ok(None) => None,
            Ok(Some(Answer::Xid { code })) => Some(ListenerEvent::Xid(code)),
            Ok(Some(_)) | Err(_) => Some(ListenerEvent::Disconnected),
        }
    }
}

/// Waits until one of the listeners has an event. Returns its index and the event, or `None` after `timeout`.
pub fn wait_any(listeners: &mut [Listener], timeout: Duration) -> io::Result<Option<(usize, ListenerEvent)>> {
    let until = Instant::now().checked_add(timeout);
    loop {
        for (index, listener) in listeners.iter_mut().enumerate() {
            if let Some(event) = listener.poll_event() {
                return Ok(Some((index, event)));
            }
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        // Rounded up, so that the last millisecond is waited for too.
        let wait = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut fds: Vec<_> = listeners
            .iter()
            .map(|listener| PollFd::new(listener.0.socket().as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut fds, wait) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
