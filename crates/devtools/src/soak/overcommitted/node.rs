//! The simulated GPU whose clients have more memory together than it has, and its pod-manager with a resource file.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use sluice_test_bed::{Artifacts, Interrupts, Metrics, TestBed, TestBedOptions};

use super::super::clients::{Client, client, resource_file};
use super::super::tenant_node::{TenantNode, this_program};

const MIB: u64 = 1 << 20;

/// Three clients that do not fit together beside the latency-critical one. Each has one process, because two would share the host memory of their
/// client: what one has had counts until it ends, so the other might get none.
pub(super) const CLIENTS: [Client; 4] = [
    client("urgent", "latency-critical", 16),
    Client { overcommits: true, ..client("left", "best-effort", 64) },
    Client { overcommits: true, ..client("right", "best-effort", 64) },
    Client { overcommits: true, children: true, ..client("parent", "best-effort", 64) },
];
/// What the clients have of the GPU together: beside the latency-critical client one of the others, and a part of a second one.
pub(super) const CAPACITY: u64 = 96 * MIB;
/// The GPU has as much more for contexts, and for the memory of killed processes, which stays until the manager learns of their end.
const GPU: u64 = 384 * MIB;
const CONTEXT: u64 = 2 * MIB;
/// More than the processes can need, so that no allocation is refused for want of it.
const HOST: u64 = 1024 * MIB;
const QUANTUM_MS: u64 = 200;
const THREADS: u32 = 2;
/// How long a manager may take until it serves.
const SERVING_TIMEOUT: Duration = Duration::from_secs(90);

/// A running node.
pub(super) struct OvercommittedNode {
    bed: TestBed,
    controls: &'static str,
}

impl OvercommittedNode {
    /// Starts it. `schedules_groups`: channel groups are scheduled, else grants are given by token.
    pub(super) fn start(schedules_groups: bool, interrupts: &Interrupts) -> anyhow::Result<Self> {
        let sluice = this_program()?.with_file_name("sluice");
        let controls = if schedules_groups { "simulated" } else { "off" };
        let manager_flags = [
            format!("--controls={controls}"),
            "--on-manager-loss=closed".to_owned(),
            format!("--overcommit-memory={CAPACITY}"),
            format!("--host-memory={HOST}"),
            format!("--memory-quantum-ms={QUANTUM_MS}"),
        ];
        let [gpu, context] = [GPU, CONTEXT].map(|bytes| bytes.to_string());
        let simulator_flags = ["--memory", &gpu, "--context-memory", &context, "--report-memory", "off"];
        let options = TestBedOptions {
            simulated: true,
            simulator_flags: simulator_flags.map(str::to_owned).to_vec(),
            resource_file: resource_file(&CLIENTS),
            manager_flags: manager_flags.to_vec(),
            ready_timeout: SERVING_TIMEOUT,
            ..TestBedOptions::default()
        };
        let bed = TestBed::start(Artifacts::beside(&sluice, true)?, options, || interrupts.pause())?;
        fs::create_dir(bed.path().join("tmp"))?;
        Ok(Self { bed, controls })
    }

    pub(super) fn describe(&self) -> String {
        let clients = CLIENTS.iter().filter(|client| client.overcommits).count();
        format!(
            "{clients} clients of a second node have more memory together than its GPU; controls {}",
            self.controls
        )
    }

    /// A metric of a client.
    pub(super) fn of_client(metrics: &Metrics, metric: &str, client: &str) -> Option<f64> {
        metrics.of_client(metric, client)
    }

    /// Suspends a client, or resumes it, as an operator does.
    pub(super) fn set_suspended(&self, client: &str, suspended: bool) -> anyhow::Result<()> {
        let mut command = self.bed.sluice();
        command.arg(if suspended { "suspend" } else { "resume" }).arg(client);
        command.arg("--resource-file").arg(self.bed.path().join("clients")).stdout(Stdio::null());
        let status = command.status().context("cannot start sluice")?;
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(())
    }

    pub(super) fn manager_pid(&self) -> Option<i32> {
        self.bed.manager_pid()
    }

    pub(super) fn kill_manager(&mut self) {
        self.bed.kill_manager();
    }

    /// Stops the manager, or lets it run again.
    pub(super) fn signal_manager(&self, signal: Signal) -> anyhow::Result<()> {
        self.bed.signal_manager(signal)
    }

    /// Starts the manager if it was killed, and waits until it serves.
    pub(super) fn start_missing(&mut self, interrupts: &Interrupts) -> anyhow::Result<()> {
        if self.bed.manager_pid().is_none() { self.bed.start_manager(|| interrupts.pause()) } else { Ok(()) }
    }

    /// Fails if a daemon has ended that was not killed by the soak.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        self.bed.check_running()
    }

    /// Ends the manager with SIGTERM.
    pub(super) fn end_manager(&mut self) -> anyhow::Result<()> {
        self.bed.end_manager()
    }

    /// Files that the manager and the tenants have left: a socket, and anything in their TMPDIR.
    pub(super) fn leftovers(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.bed.path().join("tmp")).into_iter().flatten().flatten();
        let socket = Some(self.bed.manager_socket()).filter(|socket| socket.exists());
        files.map(|entry| entry.path()).chain(socket).collect()
    }

    /// How often memory has left the GPU and returned, by the log of all hooks.
    pub(super) fn moves(&self) -> (usize, usize) {
        let log = fs::read_to_string(self.hook_log()).unwrap_or_default();
        let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        (count("memory left the GPU"), count("memory returned to the GPU"))
    }
}

impl TenantNode for OvercommittedNode {
    fn clients(&self) -> &'static [Client] {
        &CLIENTS
    }

    fn bed(&self) -> &TestBed {
        &self.bed
    }

    fn tenant_command(&self, client: usize, seed: u64) -> anyhow::Result<Command> {
        let mut command = self.hooked_command(client, THREADS, seed)?;
        command.arg("--movable");
        Ok(command)
    }

    fn metrics(&self) -> Option<Metrics> {
        Metrics::scrape(self.bed.metrics_address()).ok()
    }
}
