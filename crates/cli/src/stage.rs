//! What stands before a tenant comes: a directory, a GPU, a pod-manager. All of it goes with the stage.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::artifacts::Artifacts;
use crate::metrics::Metrics;
use crate::supervise::{Line, Process};

/// How long a daemon may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a wait does between two looks; it takes its time and may fail.
type Meanwhile<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// What a stage is built for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setting {
    /// Simulate the GPU instead of using the one that the system's driver gives.
    pub(crate) simulated: bool,
    /// The pod-manager's resource file.
    pub(crate) resource_file: String,
    /// Further flags of the pod-manager.
    pub(crate) manager_flags: Vec<String>,
}

/// A GPU and its pod-manager, ready for tenants. Fields are dropped in order: processes before their directory.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The pod-manager.
    pub(crate) manager: Process,
    /// The simulated GPU's daemon, unless the GPU is real.
    pub(crate) simulator: Option<Process>,
    /// Where the manager serves `/metrics`.
    pub(crate) metrics: SocketAddr,
    setting: Setting,
    artifacts: Artifacts,
    dir: TempDir,
}

impl Stage {
    /// Builds it and waits until all of it answers; `meanwhile` is called often and may end the wait.
    ///
    /// # Errors
    /// If a part cannot be started or does not answer, and those of `meanwhile`.
    pub(crate) fn build(
        setting: Setting,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let artifacts = Artifacts::find(setting.simulated)?;
        let dir = tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot make a directory")?;
        // A path without blanks and colons, which LD_PRELOAD could not hold.
        symlink(&artifacts.hook, dir.path().join("libsluice.so")).context("cannot link the hook")?;
        let simulator = if setting.simulated {
            sluice_sim::library::lay_out(&dir.path().join("driver"), &artifacts.simulator)
                .context("cannot lay out the simulator")?;
            Some(start_simulator(&artifacts.sluice, dir.path(), &mut meanwhile)?)
        } else {
            None
        };
        fs::write(dir.path().join("clients.yaml"), &setting.resource_file)
            .context("cannot write clients.yaml")?;
        let (manager, metrics) =
            start_manager(&artifacts, dir.path(), &setting.manager_flags, &mut meanwhile)?;
        Ok(Self { manager, simulator, metrics, setting, artifacts, dir })
    }

    /// Socket of the simulated GPU's daemon.
    pub(crate) fn simulator_socket(&self) -> PathBuf {
        simulator_socket(self.dir.path())
    }

    /// Starts a process of a client under the hook, `sluice load ARGUMENTS`; the simulator's ledger knows it by `name`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start_tenant(
        &self,
        name: &str,
        client: &str,
        load: impl IntoIterator<Item = impl AsRef<str>>,
        lines: Sender<Line>,
    ) -> anyhow::Result<Process> {
        let mut command = self.program();
        command.arg("load");
        for argument in load {
            command.arg(argument.as_ref());
        }
        command.arg("--stop-with-stdin");
        self.show_gpu(&mut command, name);
        self.preload(&mut command, client);
        self.start(name, command, Some(lines))
    }

    /// This program, as a child.
    pub(crate) fn program(&self) -> Command {
        Process::command(&self.artifacts.sluice)
    }

    /// The hook.
    pub(crate) fn hook(&self) -> PathBuf {
        self.dir.path().join("libsluice.so")
    }

    /// Puts a command under the hook as the client of this name.
    pub(crate) fn preload(&self, command: &mut Command, client: &str) {
        command.env("LD_PRELOAD", self.hook());
        self.show_manager(command, client);
    }

    /// Lets a hook find the manager.
    pub(crate) fn show_manager(&self, command: &mut Command, client: &str) {
        command.env("SLUICE_SOCKET", self.manager_socket()).env("SLUICE_CLIENT", client);
    }

    /// Lets a command find the GPU, without the hook.
    pub(crate) fn show_gpu(&self, command: &mut Command, label: &str) {
        if self.simulator.is_some() {
            command
                .env("LD_LIBRARY_PATH", self.dir.path().join("driver"))
                .env("SLUICE_SIM_SOCKET", self.simulator_socket())
                .env("SLUICE_SIM_LABEL", label);
        }
    }

    /// Starts a command that came from [`Stage::program`]; its log lies in the stage's directory.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        &self,
        name: &str,
        command: Command,
        lines: Option<Sender<Line>>,
    ) -> anyhow::Result<Process> {
        Process::start(name, command, self.dir.path(), lines)
    }

    /// Socket of the pod-manager.
    pub(crate) fn manager_socket(&self) -> PathBuf {
        manager_socket(self.dir.path())
    }

    /// Fails if a daemon has ended.
    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        if let Some(simulator) = &mut self.simulator {
            simulator.check_running()?;
        }
        self.manager.check_running()
    }

    /// Kills the manager with SIGKILL.
    pub(crate) fn kill_manager(&mut self) {
        self.manager.kill();
    }

    /// Starts the manager again after [`Stage::kill_manager`].
    ///
    /// # Errors
    /// If it does not come up.
    pub(crate) fn restart_manager(
        &mut self,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        (self.manager, self.metrics) =
            start_manager(&self.artifacts, self.dir.path(), &self.setting.manager_flags, &mut meanwhile)?;
        Ok(())
    }
}

fn manager_socket(dir: &Path) -> PathBuf {
    dir.join("manager.sock")
}

/// Where [`start_simulator`] has a simulated GPU served.
pub(crate) fn simulator_socket(dir: &Path) -> PathBuf {
    dir.join("gpu.sock")
}

/// Starts the daemon of a simulated GPU and waits until it serves; `meanwhile` is called often and may end the wait.
///
/// # Errors
/// If it cannot be started or does not serve, and those of `meanwhile`.
pub(crate) fn start_simulator(
    sluice: &Path,
    dir: &Path,
    meanwhile: Meanwhile<'_>,
) -> anyhow::Result<Process> {
    let socket = simulator_socket(dir);
    let mut command = Process::command(sluice);
    command.arg("sim").arg("--socket").arg(&socket);
    let mut process = Process::start("simulator", command, dir, None)?;
    wait_for(&mut process, meanwhile, || sluice_sim::client::ledger(&socket).is_ok())?;
    Ok(process)
}

fn start_manager(
    artifacts: &Artifacts,
    dir: &Path,
    flags: &[String],
    meanwhile: Meanwhile<'_>,
) -> anyhow::Result<(Process, SocketAddr)> {
    let metrics = free_port().context("no free port for /metrics")?;
    let mut command = Process::command(&artifacts.sluice);
    command.arg("pod-manager").arg("--socket").arg(manager_socket(dir));
    command.arg("--resource-file").arg(dir.join("clients.yaml")).arg("--metrics").arg(metrics.to_string());
    command.args(flags);
    let mut process = Process::start("pod-manager", command, dir, None)?;
    wait_for(&mut process, meanwhile, || manager_socket(dir).exists() && Metrics::scrape(metrics).is_ok())?;
    Ok((process, metrics))
}

/// An address that nobody uses at the moment.
fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn wait_for(
    process: &mut Process,
    meanwhile: Meanwhile<'_>,
    mut ready: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        process.check_running()?;
        if Instant::now() >= deadline {
            bail!("{} does not answer{}", process.name(), process.log_tail());
        }
        meanwhile()?;
    }
    Ok(())
}
