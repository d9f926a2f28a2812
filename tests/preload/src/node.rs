//! A test bed for the preload tests: the same as [`TestBed`], with functions that panic and tenants that are C programs.

mod gpu;
mod manager;
mod options;

use crate::artifacts::Artifacts;
use crate::compiled_programs::Linking;
use crate::stepped_clock::SteppedClock;
use crate::tenant::TenantOptions;
use crate::waiting::pause;
use sluice_test_bed::{SimulatedGpu, TestBed};
use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use gpu::Measured;
pub use options::NodeOptions;

#[expect(clippy::unnecessary_wraps, reason = "the type of a test bed's pause, which may end the wait")]
fn between_polls() -> anyhow::Result<()> {
    pause();
    Ok(())
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
        NodeOptions::new(resources)
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

    /// The unix socket of one of this node's GPUs, from 0.
    pub fn socket_of_gpu(&self, gpu: usize) -> PathBuf {
        self.bed.socket_of_gpu(gpu)
    }

    /// The pod-manager's TCP address, for peers of Gemini's protocol.
    pub fn tcp(&self) -> SocketAddr {
        self.bed.tcp_address()
    }

    /// Directory for further files of this node.
    pub fn path(&self) -> &Path {
        self.bed.path()
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
