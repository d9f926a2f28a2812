//! The simulated driver, behind a socket.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Transport, blank_pointer, wire};

/// How long an answer may take: longer than any control that the simulator models.
const PATIENCE: Duration = Duration::from_secs(2);

/// A packet socket to the simulator's daemon.
///
/// It may be shared with the process that it came from, as an open file of the real driver is. So the answer to a request
/// comes on a socket of its own, sent along with the request: on the shared one somebody else might take it.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Transport for Socket {
    fn escape(&self, nr: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
        blank_pointer(block, !params.is_empty())?;
        let request =
            wire::encode_request(u32::from(nr), block, params).ok_or(io::ErrorKind::InvalidInput)?;
        let (mut ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        // A packet goes whole or not at all.
        sluice_sys::socket::send_with_fds(self.0.as_fd(), &request, &[theirs.as_fd()])?;
        // With our copy gone, a daemon that dies leaves the end of the stream behind, not silence.
        drop(theirs);
        let mut answer = vec![0; wire::answer_len(block, params)];
        ours.read_exact(&mut answer)?;
        wire::read_answer(&answer, block, params)
    }
}
