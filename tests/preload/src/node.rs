//! A test bed for the preload tests: the same as [`TestBed`], with functions that panic and tenants that are C programs.

use crate::artifacts::{self, Artifacts};
use crate::compiled_programs::Linking;
use crate::host_time::HostTime;
use crate::stepped_clock::SteppedClock;
use crate::tenant::{Tenant, TenantOptions};
use crate::waiting::{TIMEOUT, eventually, pause, polling};
use nix::sys::signal::Signal;
use sluice_sim::fault::ControlFault;
use sluice_sim::ledger::{Interval, Ledger, ProcessLedger, Window};
use sluice_test_bed::{Metrics, SimulatedGpu, TestBed, TestBedOptions};
use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a node.
#[derive(Debug, Default)]
#[must_use = "a node runs only once started"]
pub struct NodeOptions {
    resources: String,
    manager_arguments: Vec<String>,
    simulator_arguments: Vec<String>,
    without_manager: bool,
    measures_memory: bool,
    stepped: bool,
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

    /// The GPU's time stands still unless the test waits for something of this node or of its tenants: each poll advances it by 1 ms.
    /// For tests whose outcome may not depend on the speed of the host, and in which nothing compares the GPU's time with the host's.
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self.simulator_arguments("--clock stepped")
    }

    /// The pod-manager reads the memory of processes from the simulated GPU's NVML.
    pub fn measuring_memory(mut self) -> Self {
        self.measures_memory = true;
        self
    }

    /// No pod-manager is started.
    pub fn without_manager(mut self) -> Self {
        self.without_manager = true;
        self
    }

    /// Starts the node and waits until it serves.
    ///
    /// # Panics
    /// When a process does not start.
    pub fn start(mut self) -> Node {
        let artifacts = artifacts::built();
        // Where channel groups are controlled, attached processes are inspected, as on a cluster.
        if self.manager_arguments.join(" ").contains("--controls simulated") {
            self.manager_arguments.push("--adopt=auto".to_owned());
        }
        let options = TestBedOptions {
            simulated: true,
            simulator_flags: self.simulator_arguments,
            resource_file: self.resources,
            manager_flags: self.manager_arguments,
            measures_memory: self.measures_memory,
            with_manager: !self.without_manager,
            environment: Vec::new(),
            with_tcp: true,
            ready_timeout: TIMEOUT,
            directory_prefix: "preload-node-".to_owned(),
        };
        let Artifacts { sluice, hook, simulator, .. } = artifacts;
        let programs = sluice_test_bed::Artifacts {
            sluice: sluice.clone(),
            hook: hook.clone(),
            simulator: simulator.clone(),
        };
        let bed = TestBed::start(programs, options, between_polls)
            .unwrap_or_else(|error| panic!("starting the node: {error:#}"));
        let stepped = self.stepped.then(|| SteppedClock::of(bed.gpu()));
        let simulator = bed.simulator_socket();
        Node {
            artifacts,
            gpu: bed.gpu(),
            stepped,
            simulator,
            started: Cell::new(0),
            violation: Cell::new(None),
            bed,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a test bed's pause, which may end the wait")]
fn between_polls() -> anyhow::Result<()> {
    pause();
    Ok(())
}

/// A span of the GPU's time, with what the host took from this machine meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Begin and end.
    pub span: (u64, u64),
    /// The part of it that the host took.
    pub taken: f64,
    /// The same in nanoseconds.
    pub taken_ns: u64,
}

/// A running node. Dropping it ends all processes and, in a failed test, prints the end of each log.
pub struct Node {
    artifacts: &'static Artifacts,
    bed: TestBed,
    gpu: SimulatedGpu,
    stepped: Option<SteppedClock>,
    simulator: PathBuf,
    started: Cell<u32>,
    /// The kind of violation that the test causes.
    violation: Cell<Option<&'static str>>,
}

impl Node {
    /// A node with this resource file: Gemini's text, or YAML if it contains "clients:".
    ///
    /// # Panics
    /// When a process does not start.
    pub fn start(resources: &str) -> Self {
        Self::with(resources).start()
    }

    /// Options of a node with this resource file.
    pub fn with(resources: &str) -> NodeOptions {
        NodeOptions { resources: resources.to_owned(), ..NodeOptions::default() }
    }

    /// The present ledger of the simulated GPU.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn ledger(&self) -> Ledger {
        self.gpu.ledger().unwrap_or_else(|error| panic!("reading the ledger: {error:#}"))
    }

    /// Reads the ledger until `find` returns a value.
    ///
    /// # Panics
    /// When it never does.
    #[track_caller]
    pub fn when<T>(&self, what: &str, mut find: impl FnMut(&Ledger) -> Option<T>) -> T {
        polling(what, || find(&self.ledger()), || self.pause())
    }

    /// Between two polls: the GPU's time goes on.
    fn pause(&self) {
        match &self.stepped {
            None => pause(),
            Some(clock) => {
                clock.step();
                // Time for the processes to react.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Advances the GPU's clock at once, on a stepped node. Commands that are submitted meanwhile count as submitted at its end.
    ///
    /// # Panics
    /// When the node is not stepped.
    #[track_caller]
    pub fn advance(&self, ns: u64) {
        let Some(clock) = &self.stepped else { panic!("only a stepped node's clock is advanced") };
        clock.advance(ns);
    }

    /// Calls `act`, which waits for the GPU, while the GPU's time goes on.
    ///
    /// # Panics
    /// When `act` panics.
    pub fn during<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let acting = scope.spawn(act);
            self.when("the GPU's answer", |_| acting.is_finished().then_some(()));
            acting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The ledger's row of a process.
    ///
    /// # Panics
    /// When the simulator does not answer or the process has never used the GPU.
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

    /// Waits until `duration_ns` of the GPU's time have passed; returns the begin and the end of that span.
    ///
    /// # Panics
    /// When the GPU's time does not advance.
    #[track_caller]
    pub fn let_pass(&self, duration_ns: u64) -> (u64, u64) {
        let from = self.ledger().gpu.now_ns;
        self.when("the GPU's time to pass", |ledger| (ledger.gpu.now_ns >= from + duration_ns).then_some(()));
        (from, from + duration_ns)
    }

    /// [`Self::let_pass`] for a bound on real time. If the host has taken more than a hundredth of the span, a second span is measured
    /// and the one from which less was taken is returned.
    #[track_caller]
    pub fn undisturbed(&self, duration_ns: u64) -> Measured {
        let measure = || {
            let host = HostTime::begin();
            let span = self.let_pass(duration_ns);
            Measured { span, taken: host.taken(), taken_ns: host.taken_ns() }
        };
        let first = measure();
        if first.taken <= 0.01 {
            return first;
        }
        let second = measure();
        if second.taken < first.taken { second } else { first }
    }

    /// Use of the GPU between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn window(&self, (from_ns, to_ns): (u64, u64)) -> Window {
        self.gpu.window(from_ns, to_ns).unwrap_or_else(|error| panic!("reading a window: {error:#}"))
    }

    /// Use of the GPU in each of `parts` equal parts of a span of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn windows(&self, (from_ns, to_ns): (u64, u64), parts: u64) -> Vec<Window> {
        let at = |part: u64| from_ns + (to_ns - from_ns) * part / parts;
        (0..parts).map(|part| self.window((at(part), at(part + 1)))).collect()
    }

    /// The processes that had the GPU between two times of its clock.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn timeline(&self, (from_ns, to_ns): (u64, u64)) -> Vec<Interval> {
        self.gpu.timeline(from_ns, to_ns).unwrap_or_else(|error| panic!("reading the timeline: {error:#}"))
    }

    /// Sets a fault of the driver's controls.
    ///
    /// # Panics
    /// When the simulator does not answer.
    pub fn set_control_fault(&self, fault: ControlFault) {
        self.gpu.set_control_fault(Some(fault)).unwrap_or_else(|error| panic!("setting a fault: {error:#}"));
    }

    /// A tenant of this node: `programs/NAME.c` under the hook, as a process of `client`.
    pub fn tenant(&self, client: &str, program: &str) -> TenantOptions {
        let number = self.started.get() + 1;
        self.started.set(number);
        let name = format!("{number}-{program}");
        let hook_log = self.path().join(format!("{name}.hook.log"));
        TenantOptions {
            name,
            logs: self.path().to_path_buf(),
            stepped: self.stepped.clone(),
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
                ("SLUICE_LOG".into(), hook_log.into()),
            ],
            preload: vec![self.artifacts.hook.clone()],
            library_path: self.artifacts.driver.clone(),
            shell: None,
        }
    }

    /// The pod-manager's unix socket.
    pub fn socket(&self) -> PathBuf {
        self.bed.manager_socket()
    }

    /// The simulated GPU's unix socket.
    pub fn simulator(&self) -> &Path {
        &self.simulator
    }

    /// The pod-manager's TCP address, for peers of Gemini's protocol.
    pub fn tcp(&self) -> SocketAddr {
        self.bed.tcp_address()
    }

    /// Directory for further files of this node.
    pub fn path(&self) -> &Path {
        self.bed.path()
    }

    /// Replaces the resource file by renaming.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_resources(&self, text: &str) {
        self.bed.write_resource_file(text).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Starts the pod-manager and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_manager(&mut self) {
        self.bed.start_manager(between_polls).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Stops the pod-manager with SIGSTOP: it hangs, and its connections stay open.
    ///
    /// # Panics
    /// When there is none.
    pub fn stop_manager(&self) {
        self.bed.signal_manager(Signal::SIGSTOP).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Lets a stopped pod-manager run again.
    ///
    /// # Panics
    /// When there is none.
    pub fn resume_manager(&self) {
        self.bed.signal_manager(Signal::SIGCONT).unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Kills the pod-manager as an out-of-memory killer does, and waits until it is gone.
    pub fn kill_manager(&mut self) {
        self.bed.kill_manager();
    }

    /// Ends the pod-manager with SIGTERM, and waits until it has ended.
    ///
    /// # Panics
    /// When it does not end with status 0.
    pub fn end_manager(&mut self) {
        self.bed.end_manager().unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// The pod-manager's pid.
    ///
    /// # Panics
    /// When there is none.
    pub fn manager_pid(&self) -> i32 {
        self.bed.manager_pid().expect("a pod-manager runs")
    }

    /// Whether the pod-manager still runs.
    pub fn manager_runs(&mut self) -> bool {
        self.bed.is_manager_running()
    }

    /// The log of all pod-managers of this node.
    pub fn manager_log(&self) -> String {
        self.bed.manager_log()
    }

    /// Waits until the pod-manager's log has a line that contains all of `words`, and returns the line.
    ///
    /// # Panics
    /// When it never has.
    #[track_caller]
    pub fn logged(&self, words: &[&str]) -> String {
        eventually(&format!("a log line with {words:?}"), || {
            let log = self.manager_log();
            log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
        })
    }

    /// Waits until the manager has counted a violation of this kind. Others are mistakes of the manager.
    ///
    /// # Panics
    /// When it never counts one.
    #[track_caller]
    pub fn expect_violation(&self, kind: &'static str) {
        self.logged(&["violation: ", kind]);
        self.violation.set(Some(kind));
    }

    /// The pod-manager's metrics.
    ///
    /// # Panics
    /// When it does not serve them.
    pub fn metrics(&self) -> Metrics {
        Metrics::scrape_within(TIMEOUT, self.bed.metrics_address())
            .unwrap_or_else(|error| panic!("scraping metrics: {error:#}"))
    }

    /// One metric of one client, zero when there is no such series.
    ///
    /// # Panics
    /// When the pod-manager does not serve metrics.
    pub fn metric(&self, name: &str, client: &str) -> f64 {
        self.metrics().of_client(name, client).unwrap_or(0.0)
    }

    /// Prints the end of every log of this node.
    fn print_logs(&self) {
        let Ok(entries) = fs::read_dir(self.path()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_log = path.extension().is_some_and(|kind| kind == "log");
            let text = if is_log { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                eprintln!("--- the end of {name}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.print_logs();
        }
        // A violation that the test does not expect is a mistake of the manager.
        let log = self.manager_log();
        let is_expected = |line: &&str| self.violation.get().is_some_and(|kind| line.contains(kind));
        let violation = log.lines().find(|line| line.contains("violation: ") && !is_expected(line));
        assert_eq!(violation, None, "the manager counted a violation");
    }
}
