//! A pod-manager in a directory of its own, with a clock and peers that the test controls, and peers to talk to it.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::new_without_default, reason = "tests")]

pub mod agent;
pub mod clock;
pub mod discovery;
pub mod driver;
pub mod gemini;
pub mod group_processes;
pub mod hook;
pub mod http;
pub mod logs;
pub mod memory;
pub mod peers;
pub mod trace;

use clock::ManualClock;
use driver::FakeDriver;
use hook::Hook;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use peers::ScriptedPeers;
use sluice_pod_manager::{Config, Handle, Parts, start_with};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tempfile::TempDir;

/// One millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// One gibibyte.
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Most tests advance the clock in one step, which is not to count as a stop of the manager.
const NEVER_STOPPED: std::time::Duration = std::time::Duration::from_secs(3600);

/// On a clock that stands still within the time around a deadline, the manager polls all the while.
const NO_POLLING: std::time::Duration = std::time::Duration::ZERO;

/// Waits for something that another thread does. Panics with `what` after a time limit.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < hook::PATIENCE, "time limit passed before: {what}");
        std::thread::yield_now();
    }
}

/// Raises the limit of descriptors: those of both ends of a connection belong to the test.
pub fn allow_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

/// Two best-effort clients, which share the token, and a latency-critical one.
pub const CLIENTS: &str = "
clients:
  - { name: be-a, request: 0.3, memory: 8Gi }
  - { name: be-b, request: 0.5, memory: 10Gi }
  - { name: lc, request: 0.2, memory: 1Gi, class: latency-critical }
";

/// A running manager.
pub struct World {
    pub clock: ManualClock,
    pub peers: ScriptedPeers,
    pub driver: FakeDriver,
    pub config: Config,
    /// For the next start: the search for processes without the hook.
    pub discovery: Option<discovery::FakeDiscovery>,
    /// For the next start: where copies of control descriptors go.
    pub escrow: Option<OwnedFd>,
    /// For the next start: what the driver reports of the memory of processes.
    pub memory: Option<memory::FakeMemory>,
    handle: Option<Handle>,
    /// The resource file.
    pub file: PathBuf,
    pub directory: TempDir,
}

impl World {
    /// Starts one with [`CLIENTS`].
    pub fn new() -> Self {
        Self::with(CLIENTS, |_| {})
    }

    /// Starts one with these clients and whatever `change` makes of the configuration.
    pub fn with(clients: &str, change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resources");
        std::fs::write(&file, clients).unwrap();
        let mut config = Config::new(directory.path().join("gpu.sock"), &file);
        config.missed_heartbeat = NEVER_STOPPED;
        config.busy_poll = NO_POLLING;
        change(&mut config);
        Self::started(config, file, directory)
    }

    /// Starts one whose clients the node agent sets; there are none yet.
    pub fn for_agent(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (socket, control) = (directory.path().join("gpu.sock"), directory.path().join("control.sock"));
        let mut config = Config::for_agent(socket, control, "GPU-test");
        config.missed_heartbeat = NEVER_STOPPED;
        config.busy_poll = NO_POLLING;
        change(&mut config);
        Self::started(config, PathBuf::new(), directory)
    }

    fn started(mut config: Config, file: PathBuf, directory: TempDir) -> Self {
        config.metrics = Some(([127, 0, 0, 1], 0).into());
        let mut world = Self {
            clock: ManualClock::new(),
            peers: ScriptedPeers::default(),
            driver: FakeDriver::default(),
            config,
            discovery: None,
            escrow: None,
            memory: None,
            handle: None,
            file,
            directory,
        };
        world.start();
        world
    }

    /// Starts it again with another driver.
    pub fn restart_with(&mut self, driver: FakeDriver) {
        self.stop();
        self.driver = driver;
        self.start();
    }

    /// Starts the manager (again).
    pub fn start(&mut self) {
        let (clock, peers) = (Box::new(self.clock.clone()), Box::new(self.peers.clone()));
        let parts = Parts {
            clock,
            peers,
            driver: Some(Box::new(self.driver.clone())),
            discovery: self.discovery.clone().map(|discovery| Box::new(discovery) as _),
            escrow: self.escrow.take(),
            memory: self.memory.clone().map(|memory| Box::new(memory) as _),
        };
        self.handle = Some(start_with(self.config.clone(), parts).unwrap());
    }

    /// Stops the manager.
    pub fn stop(&mut self) {
        self.handle.take().unwrap().stop().unwrap();
    }

    /// Starts one that serves traces.
    pub fn traced(clients: &str) -> Self {
        Self::with(clients, |config| {
            config.trace = Some(config.socket.with_file_name("operator").join("gpu.trace"));
        })
    }

    pub fn handle(&self) -> &Handle {
        self.handle.as_ref().unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.config.socket.clone()
    }

    /// A fresh process of a client, attached on both channels.
    pub fn process(&self, client: &str) -> Hook {
        Hook::attach(&self.socket(), &self.peers.process(), client, 0).unwrap()
    }

    /// A process of `be-a` that holds a grant, and one of `be-b` that waits for it.
    pub fn holder_and_waiter(&self) -> (Hook, Hook) {
        let (mut holder, mut waiter) = (self.process("be-a"), self.process("be-b"));
        holder.want();
        holder.granted();
        waiter.want();
        self.settle();
        (holder, waiter)
    }

    /// A fresh process of a pod, attached on both channels.
    pub fn process_of(&self, uid: &str) -> Hook {
        Hook::attach(&self.socket(), &self.peers.process_of(uid), "any-name", 0).unwrap()
    }

    /// The text of /metrics.
    pub fn metrics(&self) -> String {
        self.handle().exposition().expect("the manager runs")
    }

    /// One sample of /metrics; `None` if there is no such series.
    pub fn metric(&self, series: &str) -> Option<f64> {
        self.metrics().lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Returns once everything sent before has been dealt with: the answer comes from the data plane, and a second one
    /// comes a round later, when what the first round decided has been done.
    pub fn settle(&self) {
        for _ in 0..2 {
            assert!(self.handle().refresh(), "the manager runs");
        }
    }

    /// Moves time on and waits until the manager has acted on it.
    pub fn advance(&self, ns: u64) {
        self.clock.advance(ns);
        self.settle();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop().unwrap();
        }
    }
}
