//! Notification of faults of GPUs.

use super::link::Link;
use crate::wire::message::{Answer, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Receives every Xid of one GPU from its creation on.
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
    /// Begins to listen.
    ///
    /// # Errors
    /// No daemon answers at the socket.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let mut link = Link::open(socket)?;
        match link.ask(&Request::Listen)? {
            Answer::Done => Ok(Self(link)),
            answer => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected answer {answer:?}")))
            }
        }
    }

    fn poll_event(&mut self) -> Option<ListenerEvent> {
        match self.0.unasked() {
            Ok(None) => None,
            Ok(Some(Answer::Xid { code })) => Some(ListenerEvent::Xid(code)),
            Ok(Some(_)) | Err(_) => Some(ListenerEvent::Disconnected),
        }
    }
}

/// Waits until one of the listeners has an event. Returns its index and the event, or `None` after `timeout`.
///
/// # Errors
/// Waiting failed.
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
        let mut fds: Vec<_> =
            listeners.iter().map(|one| PollFd::new(one.0.socket().as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut fds, wait) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
