//! The doctor's temporary directory, its GPU, and the programs that it starts.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde::de::DeserializeOwned;
use sluice_load::steady;
use sluice_sim::client::gpu_info;
use sluice_sim::identity::parse_uuid;
use sluice_test_bed::{Interrupts, Process, Worker, start_simulator};
use tempfile::TempDir;

use super::trials::{DEPTH, KERNEL};

/// Variable with the socket of a running simulator.
const SIMULATOR: &str = "SLUICE_SIM_SOCKET";
/// Time between two polls of a starting simulator.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// How long a simulator may take until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Exit status of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Fields are dropped in order: processes before their directory.
#[derive(Debug)]
pub(super) struct Workspace {
    /// The simulator, unless it ran before.
    _daemon: Option<Process>,
    /// The simulator's socket, if the GPU is simulated.
    simulator: Option<PathBuf>,
    sluice: PathBuf,
    /// The only GPU that programs may see; `None` for all GPUs.
    gpu: Option<String>,
    dir: TempDir,
}

impl Workspace {
    /// A workspace for the real GPU, or for the simulated GPUs at SLUICE_SIM_SOCKET. Without that variable a simulator is started.
    /// The simulator's library is the one beside this program. In the agent's container it is not there, and the loader finds one.
    pub(super) fn new(simulated: bool) -> anyhow::Result<Self> {
        let sluice = std::env::current_exe().context("cannot find this program's path")?;
        let dir =
            tempfile::Builder::new().prefix("sluice-doctor-").tempdir().context("cannot make a directory")?;
        clean_up_when_interrupted(dir.path())?;
        let mut workspace = Self { _daemon: None, simulator: None, sluice, gpu: None, dir };
        if simulated {
            let library = workspace.sluice.with_file_name("libcuda.so");
            let running = std::env::var_os(SIMULATOR);
            let was_running = running.is_some();
            if !was_running || library.exists() {
                sluice_sim::library::lay_out(&workspace.driver(), &library)
                    .with_context(|| format!("the simulator's library {}", library.display()))?;
            }
            let socket = running.map_or_else(|| workspace.dir.path().join("gpu.sock"), PathBuf::from);
            if !was_running {
                let mut pause = || {
                    thread::sleep(POLL_EVERY);
                    Ok(())
                };
                workspace._daemon =
                    Some(start_simulator(&workspace.sluice, &socket, &[], READY_TIMEOUT, &mut pause)?);
            }
            workspace.simulator = Some(socket);
        }
        Ok(workspace)
    }

    /// The same workspace, in which programs see one GPU only. Fails if none of the simulators has this UUID.
    pub(super) fn on(mut self, gpu: Option<String>) -> anyhow::Result<Self> {
        if let (Some(gpu), Some(simulator)) = (&gpu, &mut self.simulator) {
            let uuid = parse_uuid(gpu).map_err(|why| anyhow!("--gpu-uuid {gpu}: {why}"))?;
            *simulator = of_gpu(simulator, uuid)
                .with_context(|| format!("none of the simulators {} is {gpu}", simulator.display()))?;
        }
        Ok(Self { gpu, ..self })
    }

    fn driver(&self) -> PathBuf {
        self.dir.path().join("driver")
    }

    /// The simulator's socket, if the GPU is simulated.
    pub(super) fn simulator(&self) -> Option<&Path> {
        self.simulator.as_deref()
    }

    /// Socket of the doctor's manager.
    pub(super) fn manager_socket(&self) -> PathBuf {
        self.dir.path().join("manager.sock")
    }

    /// Log of the hook in a busy program.
    pub(super) fn hook_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("hook.log")).unwrap_or_default()
    }

    /// Starts a part of the doctor as a process of its own, without the hook.
    pub(super) fn helper(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Worker> {
        Worker::start(name, self.command(name, arguments), self.dir.path())
    }

    /// Starts a busy program under the library.
    pub(super) fn busy(&self, name: &str, library: &Path) -> anyhow::Result<BusyProgram> {
        let mut command = self.command(name, &["busy", &DEPTH.to_string(), &KERNEL.as_micros().to_string()]);
        // LD_PRELOAD cannot hold a path with blanks or colons; this one has none.
        let preload = self.dir.path().join("libsluice.so");
        if !preload.exists() {
            symlink(library.canonicalize()?, &preload).context("cannot link the library")?;
        }
        command
            .env("LD_PRELOAD", preload)
            .env("SLUICE_SOCKET", self.manager_socket())
            .env("SLUICE_CLIENT", name)
            .env("SLUICE_HINTS", "off")
            .env("SLUICE_LOG", self.dir.path().join("hook.log"));
        Ok(BusyProgram(Worker::start(name, command, self.dir.path())?))
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Process::command(&self.sluice);
        command.arg("doctor-child").args(arguments);
        if let (Some(gpu), None) = (&self.gpu, &self.simulator) {
            command.env("CUDA_VISIBLE_DEVICES", gpu);
        }
        if let Some(simulator) = &self.simulator {
            if self.driver().exists() {
                command.env("LD_LIBRARY_PATH", self.driver());
            }
            command.env(SIMULATOR, simulator).env("SLUICE_SIM_LABEL", name);
        }
        command
    }
}

/// The socket of this GPU in a list separated by commas.
fn of_gpu(sockets: &Path, uuid: [u8; 16]) -> Option<PathBuf> {
    let sockets = sockets.to_str()?.split(',').map(PathBuf::from);
    sockets.into_iter().find(|socket| gpu_info(socket).is_ok_and(|info| info.uuid == uuid))
}

/// On Ctrl-C this process removes its directory and ends at once. The kernel then ends its children (`--parent`).
fn clean_up_when_interrupted(dir: &Path) -> anyhow::Result<()> {
    let (interrupts, dir) = (Interrupts::block()?, dir.to_owned());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while interrupts.pause().is_ok() {}
        let _ = std::fs::remove_dir_all(dir);
        std::process::exit(INTERRUPTED)
    })?;
    Ok(())
}

/// The driver gives a program no context. The hook is not the cause.
#[derive(Debug, thiserror::Error)]
#[error("a program gets no context: {0}")]
pub(super) struct NoContext(String);

/// The next answer of a child, until `deadline`.
pub(super) fn answer<T: DeserializeOwned>(worker: &mut Worker, deadline: Instant) -> anyhow::Result<T> {
    worker.answer(deadline, || Ok(()))
}

/// A program that keeps the GPU busy.
#[derive(Debug)]
pub(super) struct BusyProgram(Worker);

impl BusyProgram {
    pub(super) fn pid(&self) -> i32 {
        self.0.process.pid()
    }

    /// Begins the work.
    pub(super) fn go(&mut self) -> anyhow::Result<()> {
        self.0.process.send_line("go")
    }

    /// Waits until it has its context.
    pub(super) fn ready(&mut self, deadline: Instant) -> anyhow::Result<()> {
        match answer(&mut self.0, deadline)? {
            steady::Line::Ready { .. } => Ok(()),
            steady::Line::Failed { why } => Err(NoContext(why).into()),
            steady::Line::Count { .. } => bail!("the program printed a count before it was asked"),
        }
    }

    /// Number of kernels that it has completed.
    pub(super) fn completed(&mut self, deadline: Instant) -> anyhow::Result<u64> {
        self.0.process.send_line("count")?;
        loop {
            match answer(&mut self.0, deadline)? {
                steady::Line::Count { completed } => return Ok(completed),
                steady::Line::Failed { why } => return Err(anyhow!(why)),
                steady::Line::Ready { .. } => {}
            }
        }
    }
}
