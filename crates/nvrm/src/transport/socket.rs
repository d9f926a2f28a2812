//! The simulated driver, behind a socket.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Transport, blank_pointer, wire};

/// How long a request and its answer may take together: longer than any control that the simulator models.
const PATIENCE: Duration = Duration::from_secs(2);

/// A packet socket to the simulator's daemon.
///
/// It may be shared with the process that it came from, as an open file of the real driver is. So the answer to a request
/// comes on a socket of its own, sent along with the request: on the shared one somebody else might take it. Nor is there
/// any proof that a daemon is at its other end: who does not answer once is not asked again.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// An answer did not come in time.
    silent: AtomicBool,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, silent: AtomicBool::new(false) }
    }

    fn ask(&self, request: &[u8], answer: &mut [u8]) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let (mut ours, theirs) = UnixStream::pair()?;
        // A packet goes whole or not at all. The socket's own settings are its owner's: they are not changed.
        while let Err(error) =
            sluice_sys::socket::try_send_with_fds(self.fd.as_fd(), request, &[theirs.as_fd()])
        {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            wait_for_room(&self.fd, left(until)?)?;
        }
        // With our copy gone, a daemon that dies leaves the end of the stream behind, not silence.
        drop(theirs);
        let mut missing = answer;
        while !missing.is_empty() {
            ours.set_read_timeout(Some(left(until)?))?;
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
        if self.silent.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        blank_pointer(block, !params.is_empty())?;
        let request =
            wire::encode_request(u32::from(nr), block, params).ok_or(io::ErrorKind::InvalidInput)?;
        let mut answer = vec![0; wire::answer_len(block, params)];
        self.ask(&request, &mut answer).inspect_err(|error| {
            let in_time = !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            self.silent.fetch_or(!in_time, Ordering::Relaxed);
        })?;
        wire::read_answer(&answer, block, params)
    }
}

/// What is left until then.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns when a packet may go, or when the time is up, or for no reason.
fn wait_for_room(fd: &OwnedFd, patience: Duration) -> io::Result<()> {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: one `pollfd`, which is ours to write.
    let found = unsafe { libc::poll(&raw mut asked, 1, ms) };
    match found {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}
