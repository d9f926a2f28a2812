//! The transport to the simulated driver: a packet socket.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Transport, blank_pointer, wire};

/// Limit of the hook and the daemons for a request and its answer together: longer than any control that the simulator models.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// No request is sent for this time after one that was not answered.
const PAUSE: Duration = Duration::from_millis(500);

/// A packet socket to the simulator's daemon.
///
/// It may be shared with the process that sent it, like an open file of the real driver. Another user of the shared socket could read
/// an answer from it, so each request carries a socket of its own for the answer. Nothing proves that a daemon is at the other end:
/// after an answer that did not come in time, requests fail at once for half a second. So the repetition of a control and the controls of
/// other groups do not wait as well.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Limit for a request and its answer together.
    limit: Option<Duration>,
    /// When the last request failed whose answer did not come in time.
    timed_out: Mutex<Option<Instant>>,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, limit: Some(ANSWER_TIMEOUT), timed_out: Mutex::new(None) }
    }

    /// As the kernel's side of an ioctl: a request waits for its answer as long as there is a daemon.
    pub(super) fn without_limit(fd: OwnedFd) -> Self {
        Self { fd, limit: None, timed_out: Mutex::new(None) }
    }

    fn exchange(&self, request: &[u8], answer: &mut [u8]) -> io::Result<()> {
        let deadline = self.limit.map(|limit| Instant::now() + limit);
        let (mut ours, theirs) = UnixStream::pair()?;
        // A packet is sent whole or not at all. The socket's options belong to the process that sent it and are not changed.
        while let Err(error) =
            sluice_sys::socket::try_send_with_fds(self.fd.as_fd(), request, &[theirs.as_fd()])
        {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            wait_until_writable(&self.fd, time_left(deadline)?)?;
        }
        // Without this copy, the stream ends when the daemon dies.
        drop(theirs);
        let mut missing = answer;
        while !missing.is_empty() {
            ours.set_read_timeout(time_left(deadline)?)?;
            match ours.read(missing) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => missing = &mut missing[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Transport for Socket {
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
        let timed_out = *self.timed_out.lock().unwrap_or_else(PoisonError::into_inner);
        if timed_out.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        blank_pointer(block, !params.is_empty())?;
        let request =
            wire::encode_request(u32::from(nr), block, params).ok_or(io::ErrorKind::InvalidInput)?;
        let mut answer = vec![0; wire::answer_len(block, params)];
        self.exchange(&request, &mut answer).inspect_err(|error| {
            let timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            if timed_out {
                *self.timed_out.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        })?;
        wire::read_answer(&answer, block, params)
    }
}

/// The time left until a deadline; `None` if there is none.
fn time_left(deadline: Option<Instant>) -> io::Result<Option<Duration>> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Waits until a packet can probably be sent, or until the time is up. It may return early.
fn wait_until_writable(fd: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let ms = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1));
    // SAFETY: one `pollfd`, a local that outlives the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, ms) };
    match ready {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests;
