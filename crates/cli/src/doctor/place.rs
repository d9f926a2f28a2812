//! Where the doctor works: a directory, the GPU that it looks at, the library that it tries.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use sluice_sim::client::gpu_info;
use sluice_sim::identity::parse_uuid;
use tempfile::TempDir;

use super::helper::{Busy, Helper};
use super::trials::{DEPTH, KERNEL};
use crate::signals::Interrupts;
use crate::stage;
use crate::supervise::Process;

/// Names a running simulator.
const SIMULATOR: &str = "SLUICE_SIM_SOCKET";
/// Time between two looks at whether a simulator serves.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Exit status of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Fields are dropped in order: processes before their directory.
#[derive(Debug)]
pub(super) struct Place {
    simulator: Option<Simulated>,
    sluice: PathBuf,
    /// The GPU that programs are to see, if not all.
    gpu: Option<String>,
    dir: TempDir,
}

#[derive(Debug)]
struct Simulated {
    /// Absent if it runs already.
    _daemon: Option<Process>,
    socket: PathBuf,
}

impl Place {
    /// A place beside the real GPU, or beside the simulated ones that the environment names; one is started if it names none.
    /// The simulator's library is the one beside this program; where there is none, as in the agent's container, the loader
    /// has to find one.
    pub(super) fn new(simulated: bool) -> anyhow::Result<Self> {
        let sluice = std::env::current_exe().context("cannot tell where this program lies")?;
        let dir =
            tempfile::Builder::new().prefix("sluice-doctor-").tempdir().context("cannot make a directory")?;
        clean_up_when_interrupted(dir.path())?;
        let mut place = Self { simulator: None, sluice, gpu: None, dir };
        if simulated {
            let library = place.sluice.with_file_name("libcuda.so");
            let running = std::env::var_os(SIMULATOR);
            if running.is_none() || library.exists() {
                sluice_sim::library::lay_out(&place.driver(), &library)
                    .with_context(|| format!("the simulator's library {}", library.display()))?;
            }
            place.simulator = Some(match running {
                Some(socket) => Simulated { _daemon: None, socket: socket.into() },
                None => place.start_simulator()?,
            });
        }
        Ok(place)
    }

    /// The same place, where programs see one GPU only.
    ///
    /// # Errors
    /// None of the simulators says that it is this one.
    pub(super) fn on(mut self, gpu: Option<String>) -> anyhow::Result<Self> {
        if let (Some(gpu), Some(simulator)) = (&gpu, &mut self.simulator) {
            let uuid = parse_uuid(gpu).map_err(|why| anyhow!("--gpu-uuid {gpu}: {why}"))?;
            simulator.socket = of_gpu(&simulator.socket, uuid)
                .with_context(|| format!("none of the simulators {} is {gpu}", simulator.socket.display()))?;
        }
        Ok(Self { gpu, ..self })
    }

    fn driver(&self) -> PathBuf {
        self.dir.path().join("driver")
    }

    fn start_simulator(&self) -> anyhow::Result<Simulated> {
        let mut meanwhile = || {
            thread::sleep(LOOK_EVERY);
            Ok(())
        };
        let daemon = stage::start_simulator(&self.sluice, self.dir.path(), &mut meanwhile)?;
        Ok(Simulated { _daemon: Some(daemon), socket: stage::simulator_socket(self.dir.path()) })
    }

    /// The simulator's socket, if the GPU is simulated.
    pub(super) fn simulator(&self) -> Option<&Path> {
        self.simulator.as_ref().map(|simulator| simulator.socket.as_path())
    }

    /// Where the doctor's manager listens.
    pub(super) fn manager_socket(&self) -> PathBuf {
        self.dir.path().join("manager.sock")
    }

    /// What the hook of a busy program has logged.
    pub(super) fn hook_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("hook.log")).unwrap_or_default()
    }

    /// Starts a part of the doctor as a process of its own, without the hook.
    pub(super) fn helper(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Helper> {
        Helper::start(name, self.command(name, arguments), self.dir.path())
    }

    /// Starts a busy program under the library.
    pub(super) fn busy(&self, name: &str, library: &Path) -> anyhow::Result<Busy> {
        let mut command = self.command(name, &["busy", &DEPTH.to_string(), &KERNEL.as_micros().to_string()]);
        // A path without blanks and colons, which LD_PRELOAD could not hold.
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
        Ok(Busy(Helper::start(name, command, self.dir.path())?))
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
            command.env(SIMULATOR, &simulator.socket).env("SLUICE_SIM_LABEL", name);
        }
        command
    }
}

/// The one of these sockets, with commas between them, that leads to this GPU.
fn of_gpu(sockets: &Path, uuid: [u8; 16]) -> Option<PathBuf> {
    let sockets = sockets.to_str()?.split(',').map(PathBuf::from);
    sockets.into_iter().find(|socket| gpu_info(socket).is_ok_and(|info| info.uuid == uuid))
}

/// On Ctrl-C this process ends at once, its directory goes, and the kernel ends its children: they are told to end with it.
fn clean_up_when_interrupted(dir: &Path) -> anyhow::Result<()> {
    let (interrupts, dir) = (Interrupts::hold()?, dir.to_owned());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while interrupts.pause().is_ok() {}
        let _ = std::fs::remove_dir_all(dir);
        std::process::exit(INTERRUPTED)
    })?;
    Ok(())
}
