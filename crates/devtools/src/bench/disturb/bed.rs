//! The processes of a scenario: a simulated GPU, a pod-manager, and a process of each client.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_test_bed::{Metrics, TestBed, TestBedOptions, Worker};

use super::super::{start_bed, worker_command};
use super::messages::{Answer, Command};
use super::scenario::{Client, Load, Scenario, Scheduling};
use super::waits::Waits;

/// How long a process may take to answer: longer than a request to a manager that is stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take until all processes are hardware-scheduled after their start.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Kernel of a busy process.
const KERNEL_US: &str = "2000";

/// A running scenario. Processes are dropped before the bed.
pub(super) struct DisturbBed<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) waits: &'a Waits<'a>,
    processes: Vec<Worker>,
    pub(super) bed: TestBed,
}

impl<'a> DisturbBed<'a> {
    /// Starts everything and waits until each process that is not to stay idle works at its level.
    pub(super) fn start(scenario: &'a Scenario, waits: &'a Waits<'a>) -> anyhow::Result<Self> {
        let flags = scenario.scheduling.flags().iter().chain(&["--on-manager-loss=open"]);
        let options = TestBedOptions {
            simulated: true,
            resource_file: Scenario::resource_file(&scenario.clients),
            manager_flags: flags.map(|flag| (*flag).to_owned()).collect(),
            ..TestBedOptions::default()
        };
        let bed = start_bed(options, || waits.pause())?;
        let mut started = Self { scenario, waits, processes: Vec::new(), bed };
        for client in &scenario.clients {
            let process = started.start_process(client)?;
            started.processes.push(process);
        }
        for (client, process) in scenario.clients.iter().zip(&mut started.processes) {
            if client.load != Load::Idle {
                send(process, Command::Go)?;
            }
        }
        if scenario.scheduling == Scheduling::Controls {
            waits.until("all processes hardware-scheduled", LEVEL_TIMEOUT, || {
                Ok(started.is_hardware_scheduled().then_some(()))
            })?;
        }
        Ok(started)
    }

    /// Starts a process of a client and waits until it has allocated memory.
    pub(super) fn start_process(&self, client: &Client) -> anyhow::Result<Worker> {
        let mut command = worker_command("disturb-process")?;
        match client.load {
            Load::Busy | Load::Idle => command.args(["--kernel-us", KERNEL_US]),
            Load::Requests { kernel, period } => {
                let us = |ms: f64| format!("{:.0}", 1e3 * ms);
                command.args(["--kernel-us", &us(kernel), "--period-us", &us(period)])
            }
        };
        self.bed.set_gpu(&mut command, client.name);
        self.bed.set_hook(&mut command, client.name);
        let mut process = Worker::start(client.name, command, self.bed.path())?;
        match answer(&mut process, self.waits)? {
            Answer::Ready { .. } => Ok(process),
            other => bail!("{} answered {other:?} first", client.name),
        }
    }

    /// Kills the process of a client, and starts it again after a time. Returns when the new one works.
    pub(super) fn restart(&mut self, client: usize, after: Duration) -> anyhow::Result<()> {
        self.processes[client].process.kill();
        self.waits.rest(after)?;
        self.processes[client] = self.start_process(&self.scenario.clients[client])?;
        self.send(client, Command::Go)
    }

    pub(super) fn send(&mut self, client: usize, command: Command) -> anyhow::Result<()> {
        send(&mut self.processes[client], command)
    }

    /// The answer of a client's process to a command.
    pub(super) fn ask(&mut self, client: usize, command: Command) -> anyhow::Result<Answer> {
        self.send(client, command)?;
        self.answer(client)
    }

    /// The next answer of a client's process.
    pub(super) fn answer(&mut self, client: usize) -> anyhow::Result<Answer> {
        answer(&mut self.processes[client], self.waits)
    }

    /// Replaces the resource file.
    pub(super) fn write_clients(&self, clients: &[Client], comment: &str) -> anyhow::Result<()> {
        self.bed.write_resource_file(&format!("{}# {comment}\n", Scenario::resource_file(clients)))
    }

    pub(super) fn pid(&self, client: usize) -> i32 {
        self.processes[client].process.pid()
    }

    /// Sends a signal to a client's process.
    pub(super) fn signal(&self, client: usize, signal: Signal) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.pid(client)), signal).context("cannot signal a client's process")
    }

    /// Sends a signal to the pod-manager.
    pub(super) fn signal_manager(&self, signal: Signal) -> anyhow::Result<()> {
        kill(self.manager()?, signal).context("cannot signal the pod-manager")
    }

    pub(super) fn manager(&self) -> anyhow::Result<Pid> {
        self.bed.manager_pid().map(Pid::from_raw).context("the pod-manager does not run")
    }

    /// The pod-manager's metrics, if it serves them.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        Metrics::scrape(self.bed.metrics_address()).ok()
    }

    /// Whether the pod-manager reports that the process of every client that works is hardware-scheduled.
    pub(super) fn is_hardware_scheduled(&self) -> bool {
        let working = self.scenario.clients.iter().filter(|client| client.load != Load::Idle).count();
        let scheduled = self.metrics().and_then(|metrics| metrics.sum("sluice_level", &["level=\"turn\""]));
        scheduled.is_some_and(|scheduled| scheduled >= working as f64)
    }

    /// The client, by number, of each process that ever ran.
    pub(super) fn clients_by_pid(&self) -> anyhow::Result<BTreeMap<i32, usize>> {
        let place = |label: &str| self.scenario.clients.iter().position(|client| client.name == label);
        let processes = self.bed.gpu().ledger()?.processes;
        Ok(processes.iter().filter_map(|row| Some((row.pid, place(&row.label)?))).collect())
    }

    /// Fails if a daemon or a process has ended.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        self.bed.check_running()?;
        self.processes.iter_mut().try_for_each(|worker| worker.process.check_running())
    }
}

fn answer(process: &mut Worker, waits: &Waits<'_>) -> anyhow::Result<Answer> {
    process.answer(Instant::now() + ANSWER_TIMEOUT, || waits.check())
}

fn send(process: &mut Worker, command: Command) -> anyhow::Result<()> {
    process.process.send_line(&serde_json::to_string(&command)?)
}
