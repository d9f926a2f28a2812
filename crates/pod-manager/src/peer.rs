//! Which process is at the other end of a unix socket, and where it is: the kernel's word, not the peer's.

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
    /// Where it is, if that was asked for and the process is seen.
    pub place: Option<Place>,
}

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What it calls itself: for messages only.
    pub command: String,
    /// The text of its /proc/PID/cgroup.
    pub cgroup: String,
}

/// Looks at peers.
pub trait Peers: Send {
    /// Who connected.
    ///
    /// # Errors
    /// When the process has gone already, or what the system says.
    fn look(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer>;
}

/// Reads files of /proc/PID.
pub trait ProcFs: Send {
    /// The text of /proc/PID/FILE; bytes that are no text are replaced.
    ///
    /// # Errors
    /// What the system says: ENOENT or ESRCH when there is no such process.
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String>;
}

/// The kernel's /proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelProc;

impl ProcFs for KernelProc {
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
        // A process may give itself any name, and that is in its stat.
        Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{file}"))?).into_owned())
    }
}

/// The kernel's answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelPeers<P = KernelProc> {
    proc: P,
    wants_place: bool,
}

impl KernelPeers {
    /// Reads where a process is, too.
    #[must_use]
    pub fn with_places() -> Self {
        Self { proc: KernelProc, wants_place: true }
    }
}

impl<P: ProcFs> KernelPeers<P> {
    /// With another /proc than the kernel's.
    #[must_use]
    pub fn with_proc(proc: P) -> Self {
        Self { proc, wants_place: true }
    }

    fn place(&mut self, pid: i32, stat: &str) -> io::Result<Option<Place>> {
        if !self.wants_place {
            return Ok(None);
        }
        Ok(Some(Place { command: command_in(stat).to_owned(), cgroup: self.proc.read(pid, "cgroup")? }))
    }
}

impl<P: ProcFs> Peers for KernelPeers<P> {
    fn look(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = peer_credentials(socket)?;
        let pid = credentials.pid;
        if pid <= 0 {
            return Ok(Peer { credentials, started: None, pidfd: None, place: None });
        }
        let pidfd = peer_pidfd(socket)?;
        // The number may be given to another process once this one is gone, so what is read under it counts only if
        // the process is the same before and after, and seen alive after that.
        let before = self.proc.read(pid, "stat")?;
        let place = self.place(pid, &before)?;
        let started = start_in(&before).ok_or_else(|| unreadable(pid))?;
        let same = place.is_none() || start_in(&self.proc.read(pid, "stat")?) == Some(started);
        if !same || is_readable(&pidfd)? {
            return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
        }
        Ok(Peer { credentials, started: Some(started), pidfd: Some(pidfd), place })
    }
}

fn unreadable(pid: i32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no start time in /proc/{pid}/stat"))
}

/// Field 22 of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
pub(crate) fn start_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The name in parentheses.
pub(crate) fn command_in(stat: &str) -> &str {
    let inner = stat.rsplit_once(')').and_then(|(front, _)| front.split_once('('));
    inner.map_or("", |(_, command)| command)
}

fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

#[cfg(test)]
mod tests;
