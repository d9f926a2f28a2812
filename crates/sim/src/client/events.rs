//! Being told what goes wrong on GPUs.

use super::link::Link;
use crate::wire::message::{Answer, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Hears every Xid of one GPU from its creation on.
pub struct Listener(Link);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// An Xid.
    Xid(u64),
    /// The daemon has gone; nothing more will be heard.
    Gone,
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

    fn hear(&mut self) -> Option<Heard> {
        match self.0.unasked() {
            Ok(None) => None,
            Ok(Some(Answer::Xid { code })) => Some(Heard::Xid(code)),
            Ok(Some(_)) | Err(_) => Some(Heard::Gone),
        }
    }
}

/// Waits until one of them hears something, and says which; none if `timeout` has passed.
///
/// # Errors
/// Waiting failed.
pub fn wait_any(listeners: &mut [Listener], timeout: Duration) -> io::Result<Option<(usize, Heard)>> {
    let until = Instant::now().checked_add(timeout);
    loop {
        for (index, listener) in listeners.iter_mut().enumerate() {
            if let Some(heard) = listener.hear() {
                return Ok(Some((index, heard)));
            }
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        // Rounded up: the last millisecond is waited for too.
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
