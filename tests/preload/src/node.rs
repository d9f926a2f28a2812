//! A node: simulator daemon, pod-manager and the files between them, in a directory of its own.

use crate::artifacts::{self, Artifacts};
use crate::http;
use crate::patience::eventually;
use crate::programs::Linking;
use crate::tenant::{Tenant, TenantOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_sim::ledger::{Interval, Ledger, ProcessLedger, Window};
use std::cell::Cell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// How a node is to be set up.
#[derive(Debug, Default)]
#[must_use = "a node runs only once started"]
pub struct NodeOptions {
    resources: String,
    manager_arguments: Vec<String>,
    simulator_arguments: Vec<String>,
    without_manager: bool,
}

impl NodeOptions {
    /// More arguments of `sluice pod-manager`, separated by blanks.
    pub fn manager_arguments(mut self, arguments: &str) -> Self {
        self.manager_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// More arguments of `sluice sim`, separated by blanks.
    pub fn simulator_arguments(mut self, arguments: &str) -> Self {
        self.simulator_arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }

    /// No pod-manager is started.
    pub fn without_manager(mut self) -> Self {
        self.without_manager = true;
        self
    }

    /// Starts the node and waits until it answers.
    ///
    /// # Panics
    /// When something does not start.
    pub fn start(self) -> Node {
        let artifacts = artifacts::built();
        let directory = tempfile::Builder::new().prefix("preload-node-").tempdir();
        let directory = directory.unwrap_or_else(|error| panic!("making a directory for the node: {error}"));
        let simulator = directory.path().join("sim.sock");
        let log = log_file(&directory.path().join("sim.log"));
        let daemon = Command::new(&artifacts.sluice)
            .args(["--parent", &std::process::id().to_string(), "sim"])
            .arg("--socket")
            .arg(&simulator)
            .args(&self.simulator_arguments)
            .stdin(Stdio::null())
            .stdout(log.0)
            .stderr(log.1)
            .spawn()
            .unwrap_or_else(|error| panic!("starting the simulator: {error}"));
        let mut node = Node {
            artifacts,
            tcp: http::free_address(),
            metrics: http::free_address(),
            options: self,
            simulator,
            daemon,
            manager: None,
            started: Cell::new(0),
            directory,
        };
        eventually("the simulator's socket", || {
            node.check_daemon();
            UnixStream::connect(&node.simulator).ok()
        });
        node.write_resources(&node.options.resources.clone());
        if !node.options.without_manager {
            node.start_manager();
        }
        node
    }
}

/// A running node. Dropping it ends everything and, in a failed test, prints what its parts had to say.
pub struct Node {
    artifacts: &'static Artifacts,
    options: NodeOptions,
    simulator: PathBuf,
    daemon: Child,
    manager: Option<Child>,
    tcp: SocketAddr,
    metrics: SocketAddr,
    started: Cell<u32>,
    directory: TempDir,
}

/// What the pod-manager says of a port that somebody else listens on.
const TAKEN: &str = "Address already in use";

impl Node {
    /// A node whose resource file has this content: Gemini's text, or YAML if it has a "clients:" in it.
    ///
    /// # Panics
    /// When something does not start.
    pub fn start(resources: &str) -> Self {
        Self::with(resources).start()
    }

    /// Options for a node with this resource file.
    pub fn with(resources: &str) -> NodeOptions {
        NodeOptions { resources: resources.to_owned(), ..NodeOptions::default() }
    }

    /// The ledger of the simulated GPU as it stands.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn ledger(&self) -> Ledger {
        sluice_sim::client::ledger(&self.simulator)
            .unwrap_or_else(|error| panic!("reading the ledger: {error}"))
    }

    /// Looks at the ledger until `look` finds something in it.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn when<T>(&self, what: &str, mut look: impl FnMut(&Ledger) -> Option<T>) -> T {
        eventually(what, || look(&self.ledger()))
    }

    /// The ledger's row of a process.
    ///
    /// # Panics
    /// When the simulator does not answer or has never seen that process.
    #[track_caller]
    pub fn row(&self, tenant: &Tenant) -> ProcessLedger {
        let ledger = self.ledger();
        ledger
            .by_pid(tenant.pid())
            .cloned()
            .unwrap_or_else(|| panic!("the GPU knows no process {}", tenant.pid()))
    }

    /// Waits until the GPU has completed this many kernels of a process.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn when_completed(&self, tenant: &Tenant, kernels: u64) {
        self.when(&format!("{kernels} kernels of process {}", tenant.pid()), |ledger| {
            ledger.by_pid(tenant.pid()).filter(|row| row.kernels_completed >= kernels).map(|_| ())
        });
    }

    /// Lets `duration_ns` of the GPU's time pass from here on; returns its begin and its end.
    ///
    /// # Panics
    /// When the GPU's time stands still.
    #[track_caller]
    pub fn let_pass(&self, duration_ns: u64) -> (u64, u64) {
        let from = self.ledger().gpu.now_ns;
        self.when("the GPU's time to pass", |ledger| (ledger.gpu.now_ns >= from + duration_ns).then_some(()));
        (from, from + duration_ns)
    }

    /// Use of the GPU between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn window(&self, (from_ns, to_ns): (u64, u64)) -> Window {
        sluice_sim::client::window(&self.simulator, from_ns, to_ns)
            .unwrap_or_else(|error| panic!("reading a window: {error}"))
    }

    /// Who had the GPU when, between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn timeline(&self, (from_ns, to_ns): (u64, u64)) -> Vec<Interval> {
        sluice_sim::client::timeline(&self.simulator, from_ns, to_ns)
            .unwrap_or_else(|error| panic!("reading the timeline: {error}"))
    }

    /// A tenant of this node: `programs/NAME.c` under the hook, as one of `client`'s processes.
    pub fn tenant(&self, client: &str, program: &str) -> TenantOptions {
        let number = self.started.get() + 1;
        self.started.set(number);
        let log = |kind: &str| self.directory.path().join(format!("{number}-{program}.{kind}"));
        TenantOptions {
            client: client.to_owned(),
            program: program.to_owned(),
            linking: Linking::LoadTime,
            libraries: Vec::new(),
            arguments: Vec::new(),
            environment: vec![
                ("SLUICE_SIM_SOCKET".into(), self.simulator.clone().into()),
                ("SLUICE_SIM_LABEL".into(), client.into()),
                ("SLUICE_SOCKET".into(), self.socket().into()),
                ("SLUICE_CLIENT".into(), client.into()),
                ("SLUICE_LOG".into(), log("hook.log").into()),
            ],
            preload: vec![self.artifacts.hook.clone()],
            library_path: self.artifacts.driver.clone(),
            shell: None,
            stderr: log("stderr"),
        }
    }

    /// The pod-manager's unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("manager.sock")
    }

    /// The simulated GPU's unix socket.
    pub fn simulator(&self) -> &Path {
        &self.simulator
    }

    /// The pod-manager's TCP address, for old peers.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// Where files of this node may go.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a new resource file in place by renaming, as anybody careful does.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_resources(&self, text: &str) {
        let next = self.directory.path().join("resources.next");
        fs::write(&next, text)
            .and_then(|()| fs::rename(&next, self.resource_file()))
            .unwrap_or_else(|error| panic!("writing the resource file: {error}"));
    }

    /// Starts the pod-manager and waits until it accepts connections.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_manager(&mut self) {
        assert!(self.manager.is_none(), "a pod-manager runs already");
        // Between the choice of a free port and its use somebody else may have taken it.
        while !self.try_manager() {
            (self.tcp, self.metrics) = (http::free_address(), http::free_address());
        }
    }

    /// Starts the pod-manager; `false` if one of its ports is taken.
    fn try_manager(&mut self) -> bool {
        let log = log_file(&self.directory.path().join("manager.log"));
        let manager = Command::new(&self.artifacts.sluice)
            .args(["--parent", &std::process::id().to_string(), "pod-manager"])
            .arg("--socket")
            .arg(self.socket())
            .arg("--resource-file")
            .arg(self.resource_file())
            .args(["--tcp", &self.tcp.to_string(), "--metrics", &self.metrics.to_string()])
            .args(&self.options.manager_arguments)
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.0)
            .stderr(log.1)
            .spawn()
            .unwrap_or_else(|error| panic!("starting the pod-manager: {error}"));
        self.manager = Some(manager);
        eventually("the pod-manager's socket", || {
            let Some(status) = self.manager.as_mut().and_then(|child| child.try_wait().ok().flatten()) else {
                return UnixStream::connect(self.socket()).ok().map(|_| true);
            };
            let log = self.manager_log();
            assert!(log.contains(TAKEN), "the pod-manager ended ({status}) and said: {log}");
            self.manager = None;
            Some(false)
        })
    }

    /// Kills the pod-manager as an out-of-memory killer would, and waits until it is gone.
    pub fn kill_manager(&mut self) {
        if let Some(mut manager) = self.manager.take() {
            let _ = manager.kill();
            let _ = manager.wait();
        }
    }

    /// Tells the pod-manager to end, and waits until it has.
    ///
    /// # Panics
    /// When it does not end with status 0.
    pub fn end_manager(&mut self) {
        let Some(mut manager) = self.manager.take() else { return };
        let pid = Pid::from_raw(i32::try_from(manager.id()).unwrap_or(0));
        kill(pid, Signal::SIGTERM).unwrap_or_else(|error| panic!("telling the pod-manager to end: {error}"));
        let status = manager.wait().unwrap_or_else(|error| panic!("waiting for the pod-manager: {error}"));
        assert!(status.success(), "the pod-manager ended with {status}");
    }

    /// Whether the pod-manager still runs.
    pub fn manager_runs(&mut self) -> bool {
        self.manager.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// What all pod-managers of this node have logged.
    pub fn manager_log(&self) -> String {
        fs::read_to_string(self.directory.path().join("manager.log")).unwrap_or_default()
    }

    /// Waits until the pod-manager has logged a line that contains all of `words`, and returns it.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn logged(&self, words: &[&str]) -> String {
        eventually(&format!("a log line with {words:?}"), || {
            let log = self.manager_log();
            log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
        })
    }

    /// The pod-manager's metrics.
    ///
    /// # Panics
    /// When it does not serve them.
    pub fn metrics(&self) -> String {
        http::get(self.metrics, "/metrics").unwrap_or_else(|error| panic!("scraping metrics: {error}"))
    }

    /// One metric of one client, zero when there is no such series.
    ///
    /// # Panics
    /// When the pod-manager does not serve metrics.
    pub fn metric(&self, name: &str, client: &str) -> f64 {
        http::sample(&self.metrics(), name, &[&format!("client=\"{client}\"")]).unwrap_or(0.0)
    }

    fn resource_file(&self) -> PathBuf {
        self.directory.path().join("resources")
    }

    fn check_daemon(&mut self) {
        if let Ok(Some(status)) = self.daemon.try_wait() {
            let log = fs::read_to_string(self.directory.path().join("sim.log")).unwrap_or_default();
            panic!("the simulator ended ({status}) and said: {log}");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill_manager();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        if std::thread::panicking() {
            self.tell();
        }
    }
}

impl Node {
    /// Prints the end of every log of this node.
    fn tell(&self) {
        let Ok(entries) = fs::read_dir(self.directory.path()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_log = path.extension().is_some_and(|kind| kind == "log" || kind == "stderr");
            let text = if is_log { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                eprintln!("--- the end of {name}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            }
        }
    }
}

/// One file for stdout and stderr, appended to, so that a second process goes on where the first has ended.
fn log_file(path: &Path) -> (File, File) {
    let open = || File::options().create(true).append(true).open(path);
    let both = open().and_then(|file| Ok((file.try_clone()?, file)));
    both.unwrap_or_else(|error| panic!("opening {}: {error}", path.display()))
}
