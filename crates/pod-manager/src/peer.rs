//! Which process is at the other end of a unix socket: the kernel's word, not the peer's.

use sluice_sys::socket::{PeerCredentials, peer_credentials, peer_pidfd};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A process at the other end.
#[derive(Debug)]
pub struct Peer {
    /// Process, user and group at the time it connected.
    pub credentials: PeerCredentials,
    /// When the process started (clock ticks since boot): with the pid, a name that is never given twice. `None` if
    /// the process is in no pid namespace that we see; then its connections cannot be told to belong together.
    pub started: Option<u64>,
    /// Readable when the process ends.
    pub pidfd: Option<OwnedFd>,
}

/// Looks at peers.
pub trait Peers: Send {
    /// Who connected.
    ///
    /// # Errors
    /// When the process has gone already, or what the system says.
    fn look(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer>;
}

/// The kernel's answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelPeers;

impl Peers for KernelPeers {
    fn look(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = peer_credentials(socket)?;
        if credentials.pid <= 0 {
            return Ok(Peer { credentials, started: None, pidfd: None });
        }
        let pidfd = peer_pidfd(socket)?;
        // The number may be given to another process once this one is gone, so its start counts only if the process
        // is seen alive after it was read.
        let started = start_of(credentials.pid)?;
        if is_readable(&pidfd)? {
            return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
        }
        Ok(Peer { credentials, started: Some(started), pidfd: Some(pidfd) })
    }
}

/// Field 22 of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
fn start_of(pid: i32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_whitespace().nth(19).and_then(|word| word.parse().ok());
    field.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no start time in /proc/{pid}/stat"))
    })
}

fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}
