//! Processes that the test makes up: every connection of this test comes from one real process, and the manager has to
//! take them for several.

use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_pod_manager::peer::{Peer, Peers, Place};
use sluice_sys::socket::PeerCredentials;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Numbers are given once in a test program: what is logged of a process is not mistaken for another world's.
static LAST: AtomicI32 = AtomicI32::new(1000);

/// A made-up process; [`Self::die`] ends it.
#[derive(Clone)]
pub struct FakeProcess {
    pub pid: i32,
    /// The text of its /proc/PID/cgroup.
    pub cgroup: String,
    end: Arc<EventFd>,
    script: ScriptedPeers,
}

impl FakeProcess {
    /// Its pidfd becomes readable; its sockets stay open, as a forked child would keep them.
    pub fn die(&self) {
        self.end.write(1).unwrap();
    }

    /// Its CPU clock stands still from now on; `stopped`: the kernel reports it as stopped.
    pub fn freeze(&self, stopped: bool) {
        self.script.clocks.lock().unwrap().insert(self.pid, (1, stopped));
    }

    /// It has this number in the pid namespace of its container.
    pub fn number_in_container(&self, pid: i32) {
        self.script.in_container.lock().unwrap().insert(self.pid, pid);
    }

    /// It continues: its CPU clock moves on.
    pub fn thaw(&self) {
        let mut clocks = self.script.clocks.lock().unwrap();
        let clock = clocks.entry(self.pid).or_default();
        *clock = (clock.0 + 1, false);
    }

    /// Connects as this process.
    pub fn connect(&self, socket: &Path) -> io::Result<UnixStream> {
        // Held until the manager has accepted, so that connections and processes stay in the same order.
        let mut next = self.script.next.lock().unwrap();
        next.insert(0, self.clone());
        UnixStream::connect(socket)
    }
}

/// The id of a pod's only container: its uid's digits, filled up.
pub fn container(uid: &str) -> String {
    format!("{:0<64}", uid.replace('-', ""))
}

/// Names the processes in the order in which they connected.
#[derive(Clone, Default)]
pub struct ScriptedPeers {
    next: Arc<Mutex<Vec<FakeProcess>>>,
    looks: Arc<AtomicUsize>,
    /// CPU clocks of the processes that have one, and whether they are stopped, by pid.
    clocks: Arc<Mutex<HashMap<i32, (u64, bool)>>>,
    /// The numbers in their containers of the processes that have a pid namespace of their own.
    in_container: Arc<Mutex<HashMap<i32, i32>>>,
}

impl ScriptedPeers {
    /// All of these connect; then `meanwhile` runs while the manager is busy with the first of them.
    pub fn connect_at_once(
        &self,
        processes: &[FakeProcess],
        socket: &Path,
        meanwhile: impl FnOnce(),
    ) -> Vec<UnixStream> {
        let mut next = self.next.lock().unwrap();
        let looks = self.looks.load(Ordering::SeqCst);
        let connect = |process: &FakeProcess| {
            next.insert(0, process.clone());
            UnixStream::connect(socket).unwrap()
        };
        let streams = processes.iter().map(connect).collect();
        super::until("the manager looks at a peer", || self.looks.load(Ordering::SeqCst) > looks);
        meanwhile();
        streams
    }

    /// Returns once the manager has accepted every connection: it accepts a bounded number in a round.
    pub fn wait_until_accepted(&self) {
        super::until("all connections are accepted", || self.next.lock().unwrap().is_empty());
    }

    /// A process in no pod.
    pub fn process(&self) -> FakeProcess {
        self.process_in("0::/user.slice\n")
    }

    /// A process of a pod, in its container (see [`container`]).
    pub fn process_of(&self, uid: &str) -> FakeProcess {
        self.process_in(&format!("0::/kubepods/burstable/pod{uid}/{}\n", container(uid)))
    }

    /// A process with this in its /proc/PID/cgroup.
    pub fn process_in(&self, cgroup: &str) -> FakeProcess {
        let end = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let pid = LAST.fetch_add(1, Ordering::SeqCst);
        FakeProcess { pid, cgroup: cgroup.to_owned(), end: Arc::new(end), script: self.clone() }
    }
}

impl Peers for ScriptedPeers {
    fn identify(&mut self, _socket: BorrowedFd<'_>) -> io::Result<Peer> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let process = self.next.lock().unwrap().pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(Peer {
            credentials: PeerCredentials { pid: process.pid, uid: 0, gid: 0 },
            started: Some(7),
            pidfd: Some(process.end.as_fd().try_clone_to_owned()?),
            place: Some(Place { command: "test".into(), cgroup: process.cgroup }),
        })
    }

    fn cpu_ns(&mut self, pid: i32) -> Option<u64> {
        Some(self.clocks.lock().unwrap().get(&pid)?.0)
    }

    fn is_stopped(&mut self, pid: i32) -> bool {
        self.clocks.lock().unwrap().get(&pid).is_some_and(|(_, stopped)| *stopped)
    }

    fn namespace_pids(&mut self, pid: i32) -> Vec<i32> {
        self.in_container.lock().unwrap().get(&pid).map_or_else(|| vec![pid], |inner| vec![pid, *inner])
    }
}
