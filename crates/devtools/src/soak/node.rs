//! The node: the simulated GPU, and the pod-manager with or without its agent. Daemons that were killed are started again as kubelet
//! and the agent do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_test_bed::{Artifacts, Interrupts, Metrics, TestBed, TestBedOptions};

use super::agent::{Agent, GPU};
use super::clients::{CLIENTS, Client, THREADS, resource_file};
use super::tenant_node::{TenantNode, this_program};

/// How long it may take until the manager serves all clients: an agent delays restarts that follow each other.
const SERVING_TIMEOUT: Duration = Duration::from_secs(90);

/// A running node. Processes are dropped before the bed's directory.
pub(super) struct SoakNode {
    agent: Option<Agent>,
    bed: TestBed,
    /// Why there is no agent.
    without_agent: Option<String>,
}

impl SoakNode {
    /// Starts it, with an agent if that is wanted and possible.
    pub(super) fn start(with_agent: bool, interrupts: &Interrupts) -> anyhow::Result<Self> {
        let sluice = this_program()?.with_file_name("sluice");
        if !sluice.is_file() {
            bail!("{} is missing: build it with `cargo xtask build`", sluice.display());
        }
        let options = TestBedOptions {
            simulated: true,
            // The soak compares the charges with the ledger to the byte, without contexts and rounding.
            simulator_flags: ["--uuid", GPU, "--report-memory", "off"].map(str::to_owned).to_vec(),
            resource_file: resource_file(&CLIENTS),
            manager_flags: ["--controls=simulated", "--on-manager-loss=closed"].map(str::to_owned).to_vec(),
            with_manager: false,
            ready_timeout: SERVING_TIMEOUT,
            ..TestBedOptions::default()
        };
        let bed = TestBed::start(Artifacts::beside(&sluice, true)?, options, || interrupts.pause())?;
        fs::create_dir(bed.path().join("tmp"))?;
        let mut node = Self { agent: None, bed, without_agent: None };
        if !with_agent {
            node.without_agent = Some("--without-agent".to_owned());
        } else if !has_agent(&sluice)? {
            node.without_agent = Some("this sluice was built without one".to_owned());
        } else {
            match Agent::start(&node.bed)? {
                Ok(agent) => node.agent = Some(agent),
                Err(why) => node.without_agent = Some(why),
            }
        }
        if node.agent.is_none() {
            node.bed.start_manager(|| interrupts.pause())?;
        }
        node.wait_until_serving(interrupts)?;
        Ok(node)
    }

    pub(super) fn describe(&self) -> String {
        match &self.without_agent {
            None => "the node agent runs the pod-manager".to_owned(),
            Some(why) => format!("no node agent: {why}; the pod-manager runs from a resource file"),
        }
    }

    pub(super) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// A metric of a client.
    pub(super) fn of_client(&self, metrics: &Metrics, metric: &str, client: &str) -> Option<f64> {
        let label = if self.agent.is_some() { "pod" } else { "client" };
        metrics.sum(metric, &[&format!("{label}=\"{client}\"")])
    }

    pub(super) fn manager_pid(&self) -> Option<i32> {
        self.agent.as_ref().map_or(self.bed.manager_pid(), Agent::manager_pid)
    }

    pub(super) fn agent_pid(&self) -> Option<i32> {
        self.agent.as_ref().and_then(Agent::pid)
    }

    /// Kills the manager. An agent starts the next one; without an agent that is [`SoakNode::start_missing`].
    pub(super) fn kill_manager(&mut self) {
        match &self.agent {
            Some(agent) => {
                let killed = agent.manager_pid().map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
                // It may have ended just now.
                let _ = killed;
            }
            None => self.bed.kill_manager(),
        }
    }

    /// Kills the manager and the agent, if there is one. None is started.
    pub(super) fn kill_all_daemons(&mut self) {
        match &mut self.agent {
            Some(agent) => agent.kill(),
            None => self.bed.kill_manager(),
        }
    }

    /// Kills the agent.
    pub(super) fn kill_agent(&mut self) {
        self.agent.iter_mut().for_each(Agent::kill);
    }

    /// Starts the daemon that was killed and that no other daemon starts.
    pub(super) fn start_missing(&mut self, interrupts: &Interrupts) -> anyhow::Result<()> {
        match &mut self.agent {
            Some(agent) if agent.pid().is_none() => agent.start_process(&self.bed),
            None if self.bed.manager_pid().is_none() => self.bed.start_manager(|| interrupts.pause()),
            _ => Ok(()),
        }
    }

    /// Fails if a daemon has ended that was not killed by the soak.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        self.agent.iter_mut().try_for_each(Agent::check_running)?;
        self.bed.check_running()
    }

    /// Waits until the manager serves all clients.
    pub(super) fn wait_until_serving(&mut self, interrupts: &Interrupts) -> anyhow::Result<()> {
        let deadline = Instant::now() + SERVING_TIMEOUT;
        loop {
            self.check_running()?;
            let metrics = self.metrics().unwrap_or_default();
            let is_served =
                |name: &str| self.of_client(&metrics, "sluice_memory_limit_bytes", name).is_some();
            if CLIENTS.iter().all(|client| is_served(client.name)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let log = |name: &str| fs::read_to_string(self.bed.path().join(name)).unwrap_or_default();
                let log = log("node-agent.log") + &log("pod-manager.log");
                let end = log.lines().rev().take(10).map(|line| format!("\n    {line}")).collect::<String>();
                bail!(
                    "the pod-manager does not serve all clients within {} s; last lines first:{end}",
                    SERVING_TIMEOUT.as_secs()
                );
            }
            interrupts.pause()?;
        }
    }

    /// Ends the agent and the manager, or the manager alone, with SIGTERM.
    pub(super) fn end_daemons(&mut self) -> anyhow::Result<()> {
        match &mut self.agent {
            Some(agent) => agent.end(),
            None => self.bed.end_manager(),
        }
    }

    /// Files that daemons and tenants have left: sockets, and anything in their TMPDIR.
    pub(super) fn leftovers(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.bed.path().join("tmp")];
        folders.extend(self.agent.iter().flat_map(Agent::socket_folders));
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let socket = Some(self.bed.manager_socket()).filter(|socket| socket.exists());
        files.map(|entry| entry.path()).chain(socket).collect()
    }
}

impl TenantNode for SoakNode {
    fn clients(&self) -> &'static [Client] {
        &CLIENTS
    }

    fn bed(&self) -> &TestBed {
        &self.bed
    }

    fn tenant_command(&self, client: usize, seed: u64) -> anyhow::Result<Command> {
        let mut command = self.hooked_command(client, THREADS, seed)?;
        if let Some(agent) = &self.agent {
            command.env("SLUICE_SOCKET", agent.manager_socket()).arg("--cgroup").arg(agent.cgroup(client)?);
        }
        Ok(command)
    }

    fn metrics(&self) -> Option<Metrics> {
        let address = self.agent.as_ref().map_or(self.bed.metrics_address(), Agent::manager_metrics);
        Metrics::scrape(address).ok()
    }
}

/// Whether this `sluice` contains the node agent.
fn has_agent(sluice: &Path) -> anyhow::Result<bool> {
    let output =
        Command::new(sluice).args(["node-agent", "--help"]).output().context("cannot start sluice")?;
    Ok(output.status.success())
}
