//! Which process is at the other end of a unix socket, and its cgroup: as the kernel reports them, not the peer.

mod liveness;

use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use sluice_sys::socket::{PeerCredentials, peer_credentials, peer_pidfd};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A process at the other end.
#[derive(Debug)]
pub struct Peer {
    /// Process, user and group when it connected.
    pub credentials: PeerCredentials,
    /// When the process started (clock ticks since boot). Pid and start time together are never used twice. `None` if the process is in a
    /// pid namespace that is not visible from here; then its connections cannot be attributed to one process.
    pub started: Option<u64>,
    /// Readable when the process ends.
    pub pidfd: Option<OwnedFd>,
    /// Its command and cgroup, if they are needed and the process is visible.
    pub place: Option<Place>,
}

/// Command and cgroup of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name that it has given itself: for messages only.
    pub command: String,
    /// The text of its /proc/PID/cgroup.
    pub cgroup: String,
}

impl Peer {
    /// The pod and container that it is in, by its cgroup; or why it is in none.
    pub(crate) fn pod(&self) -> Result<PodCgroup, String> {
        let pid = self.credentials.pid;
        let Some(place) = &self.place else {
            // The kernel reports pid 0 for a process of a pid namespace that is not visible from here.
            return Err(format!(
                "process {pid} is in no pid namespace seen from here (the pod-manager needs the host's: hostPID)"
            ));
        };
        // The process has chosen its name, so the log quotes it.
        pod_of(&place.cgroup)
            .map_err(|why| format!("process {pid} ({:?}) is in no pod: {why}", place.command))
    }
}

/// Identifies the process at the other end of a socket.
pub trait Peers: Send {
    /// The process that connected.
    /// Errors: it has ended already, or what the system returns.
    fn identify(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer>;

    /// CPU time that all threads of a process have used, nanoseconds; `None` if that cannot be read.
    fn cpu_ns(&mut self, pid: i32) -> Option<u64>;

    /// Whether a process is stopped, or its control group is frozen.
    fn is_stopped(&mut self, pid: i32) -> bool;

    /// The number of a process in each of its pid namespaces, from the one of this manager to the process's own. If that cannot be read, only
    /// the first, which is `pid`.
    fn namespace_pids(&mut self, pid: i32) -> Vec<i32>;
}

/// Reads files of /proc/PID.
pub trait ProcFs: Send {
    /// The text of /proc/PID/FILE; bytes that are not UTF-8 are replaced.
    /// Errors: ENOENT or ESRCH when there is no such process.
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String>;

    /// Whether this is the id of a process, and not of a thread: threads have folders in /proc too.
    fn is_process(&mut self, pid: i32) -> bool;
}

/// The kernel's /proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelProc;

impl ProcFs for KernelProc {
    fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
        // A process may give itself any name, which is part of its stat file.
        Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{file}"))?).into_owned())
    }

    fn is_process(&mut self, pid: i32) -> bool {
        sluice_sys::pidfd::open(pid).is_ok()
    }
}

/// Peers as the kernel reports them.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelPeers<P = KernelProc> {
    proc: P,
    reads_place: bool,
}

impl KernelPeers {
    /// Reads command and cgroup, too.
    pub fn with_places() -> Self {
        Self { proc: KernelProc, reads_place: true }
    }
}

impl<P: ProcFs> KernelPeers<P> {
    /// With another source of /proc files than the kernel.
    #[cfg(test)]
    pub fn with_proc(proc: P) -> Self {
        Self { proc, reads_place: true }
    }

    fn place(&mut self, pid: i32, stat: &str) -> io::Result<Option<Place>> {
        if !self.reads_place {
            return Ok(None);
        }
        Ok(Some(Place { command: command_in(stat).to_owned(), cgroup: self.proc.read(pid, "cgroup")? }))
    }
}

impl<P: ProcFs> Peers for KernelPeers<P> {
    fn identify(&mut self, socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = peer_credentials(socket)?;
        let pid = credentials.pid;
        if pid <= 0 {
            return Ok(Peer { credentials, started: None, pidfd: None, place: None });
        }
        let pidfd = peer_pidfd(socket)?;
        // The pid may be reused once this process has ended. So what is read under it counts only if the start time is the same before
        // and after, and the process is alive after that.
        let before = self.proc.read(pid, "stat")?;
        let place = self.place(pid, &before)?;
        let started = start_in(&before).ok_or_else(|| unreadable(pid))?;
        let same = place.is_none() || start_in(&self.proc.read(pid, "stat")?) == Some(started);
        if !same || is_readable(&pidfd)? {
            return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
        }
        Ok(Peer { credentials, started: Some(started), pidfd: Some(pidfd), place })
    }

    fn cpu_ns(&mut self, pid: i32) -> Option<u64> {
        liveness::cpu_ns(pid)
    }

    fn is_stopped(&mut self, pid: i32) -> bool {
        liveness::is_stopped(&mut self.proc, pid)
    }

    fn namespace_pids(&mut self, pid: i32) -> Vec<i32> {
        let pids = self.proc.read(pid, "status").map(|status| namespace_pids_in(&status)).unwrap_or_default();
        if pids.is_empty() { vec![pid] } else { pids }
    }
}

fn unreadable(pid: i32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no start time in /proc/{pid}/stat"))
}

/// Field 22 of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
pub(crate) fn start_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The line `NSpid` of /proc/PID/status; empty if there is none.
fn namespace_pids_in(status: &str) -> Vec<i32> {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
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
