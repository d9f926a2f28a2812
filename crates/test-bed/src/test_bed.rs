//! A temporary directory with a GPU and a pod-manager, ready for tenants.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_sim::client::gpu_info;
use sluice_sim::identity::uuid_text;
use tempfile::TempDir;

use crate::http::free_address;
use crate::metrics::Metrics;
use crate::process::{Output, Process};
use crate::simulated_gpu::{SimulatedGpu, start_simulator};

/// How long a daemon may take until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pod-manager's message about a port that another process has taken since it was chosen.
const PORT_TAKEN: &str = "Address already in use";

/// A function that is called between two polls of a wait: it takes its time and may end the wait with an error.
pub(crate) type Pause<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// The build results. Cargo puts all of them into one directory.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// The program `sluice`, which contains the daemons and the load generators.
    pub sluice: PathBuf,
    /// The hook, `libsluice.so`.
    pub hook: PathBuf,
    /// The simulator's driver library, `libcuda.so`.
    pub simulator: PathBuf,
}

impl Artifacts {
    /// The libraries in the directory of `sluice`. Fails if one was not built; only a `simulated` GPU needs the simulator's.
    pub fn beside(sluice: &Path, simulated: bool) -> anyhow::Result<Self> {
        let hook = sluice.with_file_name("libsluice.so");
        let simulator = sluice.with_file_name("libcuda.so");
        for library in [&hook, &simulator].into_iter().take(if simulated { 2 } else { 1 }) {
            if !library.is_file() {
                bail!("{} is missing: build it with `cargo xtask build`", library.display());
            }
        }
        Ok(Self { sluice: sluice.to_owned(), hook, simulator })
    }
}

/// How a test bed is set up.
#[derive(Debug, Clone)]
pub struct TestBedOptions {
    /// Simulate the GPU instead of using the real one that the system's driver gives.
    pub simulated: bool,
    /// GPUs that the simulator simulates, on one timeline. The pod-manager has the first.
    pub gpus: usize,
    /// Socket of a simulated GPU that another test bed runs: no simulator is started, and the pod-manager has that GPU.
    pub other_simulator: Option<PathBuf>,
    /// Further flags of the simulator.
    pub simulator_flags: Vec<String>,
    /// Contents of the pod-manager's resource file.
    pub resource_file: String,
    /// Further flags of the pod-manager.
    pub manager_flags: Vec<String>,
    /// The pod-manager reads the memory of processes from the simulated GPU's NVML.
    pub measures_memory: bool,
    /// Environment of the pod-manager and of the processes under the hook.
    pub environment: Vec<(&'static str, String)>,
    /// Start the pod-manager at once; otherwise [`TestBed::start_manager`] does.
    pub with_manager: bool,
    /// The pod-manager serves Gemini's protocol over TCP too.
    pub with_tcp: bool,
    /// How long a daemon may take until it serves.
    pub ready_timeout: Duration,
    /// First part of the temporary directory's name.
    pub directory_prefix: String,
}

impl Default for TestBedOptions {
    fn default() -> Self {
        Self {
            simulated: false,
            gpus: 1,
            other_simulator: None,
            simulator_flags: Vec::new(),
            resource_file: String::new(),
            manager_flags: Vec::new(),
            measures_memory: false,
            environment: Vec::new(),
            with_manager: true,
            with_tcp: false,
            ready_timeout: READY_TIMEOUT,
            directory_prefix: "sluice-".to_owned(),
        }
    }
}

/// A GPU and its pod-manager. Fields are dropped in order: processes before their directory.
#[derive(Debug)]
pub struct TestBed {
    manager: Option<Process>,
    simulator: Option<Process>,
    /// Addresses of the pod-manager: `/metrics`, and Gemini's protocol.
    addresses: [SocketAddr; 2],
    options: TestBedOptions,
    artifacts: Artifacts,
    dir: TempDir,
}

impl TestBed {
    /// Starts the processes and waits until they serve. `pause` is called between two polls and may end the wait.
    pub fn start(
        artifacts: Artifacts,
        options: TestBedOptions,
        mut pause: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix(&options.directory_prefix).tempdir();
        let dir = dir.context("cannot make a directory")?;
        // LD_PRELOAD cannot hold a path with blanks or colons; this one has none.
        symlink(&artifacts.hook, dir.path().join("libsluice.so")).context("cannot link the hook")?;
        let mut bed = Self {
            manager: None,
            simulator: None,
            addresses: [free_address()?, free_address()?],
            options,
            artifacts,
            dir,
        };
        if bed.options.simulated {
            sluice_sim::library::lay_out(&bed.driver(), &bed.artifacts.simulator)
                .context("cannot lay out the simulator")?;
        }
        if bed.options.simulated && bed.options.other_simulator.is_none() {
            let TestBedOptions { gpus, simulator_flags, ready_timeout, .. } = &bed.options;
            let mut flags = simulator_flags.clone();
            for gpu in 1..*gpus {
                flags.extend(["--socket".to_owned(), bed.socket_of_gpu(gpu).display().to_string()]);
            }
            let (sluice, socket) = (&bed.artifacts.sluice, bed.simulator_socket());
            bed.simulator = Some(start_simulator(sluice, &socket, &flags, *ready_timeout, &mut pause)?);
        }
        bed.write_resource_file(&bed.options.resource_file)?;
        if bed.options.with_manager {
            bed.start_manager(pause)?;
        }
        Ok(bed)
    }

    /// The directory, for further files.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Copies the logs of all processes to another directory, which is made.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn copy_logs(&self, to: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(self.path())?.flatten() {
            if entry.path().extension().is_some_and(|kind| kind == "log") {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Socket of the simulated GPU that the pod-manager has.
    pub fn simulator_socket(&self) -> PathBuf {
        self.options.other_simulator.clone().unwrap_or_else(|| self.socket_of_gpu(0))
    }

    /// Socket of one of the simulator's GPUs, from 0.
    pub fn socket_of_gpu(&self, gpu: usize) -> PathBuf {
        self.path().join(if gpu == 0 { "gpu.sock".to_owned() } else { format!("gpu-{gpu}.sock") })
    }

    /// The simulated GPU.
    pub fn gpu(&self) -> SimulatedGpu {
        SimulatedGpu::at(&self.simulator_socket())
    }

    /// Socket of the pod-manager.
    pub fn manager_socket(&self) -> PathBuf {
        self.path().join("manager.sock")
    }

    /// Address at which the pod-manager serves `/metrics`.
    pub fn metrics_address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Address at which the pod-manager serves Gemini's protocol, if it was asked to.
    pub fn tcp_address(&self) -> SocketAddr {
        self.addresses[1]
    }

    /// Path of the hook.
    pub fn hook(&self) -> PathBuf {
        self.path().join("libsluice.so")
    }

    fn driver(&self) -> PathBuf {
        self.path().join("driver")
    }

    /// The program `sluice`, as a child.
    pub fn sluice(&self) -> Command {
        Process::command(&self.artifacts.sluice)
    }

    /// Puts a command under the hook as a process of `client`.
    pub fn set_hook(&self, command: &mut Command, client: &str) {
        command.env("LD_PRELOAD", self.hook());
        self.set_manager(command, client);
    }

    /// Tells a hook where the manager is, and its client.
    pub fn set_manager(&self, command: &mut Command, client: &str) {
        command.env("SLUICE_SOCKET", self.manager_socket()).env("SLUICE_CLIENT", client);
        command.envs(self.options.environment.iter().cloned());
    }

    /// Tells a command where the GPU is. The simulator's ledger gets `label`.
    pub fn set_gpu(&self, command: &mut Command, label: &str) {
        if self.options.simulated {
            command
                .env("LD_LIBRARY_PATH", self.driver())
                .env("SLUICE_SIM_SOCKET", self.simulator_socket())
                .env("SLUICE_SIM_LABEL", label);
        }
    }

    /// Fails, quoting its log, if a daemon has ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        self.simulator.iter_mut().chain(&mut self.manager).try_for_each(Process::check_running)
    }

    /// Replaces the resource file by renaming, so that the manager never reads half of it.
    pub fn write_resource_file(&self, text: &str) -> anyhow::Result<()> {
        let next = self.path().join("clients.next");
        fs::write(&next, text)
            .and_then(|()| fs::rename(&next, self.resource_file()))
            .context("cannot write the resource file")
    }

    fn resource_file(&self) -> PathBuf {
        self.path().join("clients")
    }

    /// Starts the pod-manager, also after [`TestBed::kill_manager`], and waits until it serves.
    pub fn start_manager(&mut self, mut pause: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        loop {
            let logged = self.manager_log().len();
            match self.try_start_manager(&mut pause) {
                Err(_) if self.manager_log()[logged..].contains(PORT_TAKEN) => {
                    self.addresses = [free_address()?, free_address()?];
                }
                outcome => return outcome,
            }
        }
    }

    fn try_start_manager(&mut self, pause: Pause<'_>) -> anyhow::Result<()> {
        let [metrics, tcp] = self.addresses;
        let mut command = self.sluice();
        command.arg("pod-manager").arg("--socket").arg(self.manager_socket());
        command.arg("--resource-file").arg(self.resource_file()).args(["--metrics", &metrics.to_string()]);
        if self.options.with_tcp {
            command.args(["--tcp", &tcp.to_string()]);
        }
        // A process may use several GPUs of the machine.
        if self.options.gpus > 1 || self.options.other_simulator.is_some() {
            let gpu = gpu_info(&self.simulator_socket()).context("cannot ask the simulator for its GPU")?;
            command.args(["--gpu-uuid", &uuid_text(gpu.uuid)]);
        }
        command.args(&self.options.manager_flags).env("RUST_LOG", "info").env("NO_COLOR", "1");
        command.envs(self.options.environment.iter().cloned());
        if self.options.measures_memory {
            self.set_gpu(&mut command, "");
        }
        let mut process = Process::start("pod-manager", command, self.path(), Output::Log)?;
        let socket = self.manager_socket();
        wait_until_ready(&mut process, self.options.ready_timeout, pause, || {
            UnixStream::connect(&socket).is_ok() && Metrics::scrape(metrics).is_ok()
        })?;
        self.manager = Some(process);
        Ok(())
    }

    /// Sends the pod-manager a signal: SIGSTOP makes it hang, SIGCONT lets it run again.
    pub fn signal_manager(&self, signal: Signal) -> anyhow::Result<()> {
        let manager = self.manager.as_ref().context("there is no pod-manager")?;
        kill(Pid::from_raw(manager.pid()), signal).context("cannot send the pod-manager a signal")
    }

    /// Kills the pod-manager with SIGKILL, as an out-of-memory killer does, and waits until it is gone.
    pub fn kill_manager(&mut self) {
        self.manager = None;
    }

    /// Ends the pod-manager with SIGTERM and waits until it has ended. Fails if its status is not 0.
    pub fn end_manager(&mut self) -> anyhow::Result<()> {
        let Some(mut manager) = self.manager.take() else { return Ok(()) };
        kill(Pid::from_raw(manager.pid()), Signal::SIGTERM).context("cannot end the pod-manager")?;
        match manager.wait(Instant::now() + self.options.ready_timeout)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the pod-manager ended with {status}{}", manager.log_tail()),
            None => bail!("the pod-manager does not end{}", manager.log_tail()),
        }
    }

    /// Process id of the pod-manager, if it was started and not ended here.
    pub fn manager_pid(&self) -> Option<i32> {
        self.manager.as_ref().map(Process::pid)
    }

    /// Whether the pod-manager runs.
    pub fn is_manager_running(&mut self) -> bool {
        self.manager.as_mut().is_some_and(|manager| manager.check_running().is_ok())
    }

    /// The log of all pod-managers of this bed.
    pub fn manager_log(&self) -> String {
        fs::read_to_string(self.path().join("pod-manager.log")).unwrap_or_default()
    }
}

/// Polls `ready` until it holds, calling `pause` in between.
pub(crate) fn wait_until_ready(
    process: &mut Process,
    timeout: Duration,
    pause: Pause<'_>,
    mut ready: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    while !ready() {
        process.check_running()?;
        if Instant::now() >= deadline {
            bail!("{} does not answer{}", process.name(), process.log_tail());
        }
        pause()?;
    }
    Ok(())
}
