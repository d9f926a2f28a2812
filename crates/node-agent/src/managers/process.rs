//! The process of one manager.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_placement::inventory::Gpu;
use tokio::process::{Child, Command};
use tracing::warn;

/// How long a manager may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Largest number of GPUs of a node that a manager takes into account.
const MAX_NODE_GPUS: usize = 64;

/// Memory that the clients of a GPU share whose memory may leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overcommit {
    /// Bytes of the GPU for all clients.
    pub(crate) gpu_memory: u64,
    /// Bytes of the host for what leaves the GPU.
    pub(crate) host_memory: u64,
    /// The GPU's NUMA node, from which the memory of the host is to come.
    pub(crate) numa: Option<u32>,
}

impl Overcommit {
    /// What a GPU of the inventory has; `None` without memory of the host.
    pub(crate) fn of(gpu: &Gpu) -> Option<Self> {
        let (gpu_memory, host_memory, numa) = (gpu.memory_bytes, gpu.host_memory_bytes, gpu.numa);
        (host_memory > 0).then_some(Self { gpu_memory, host_memory, numa })
    }

    fn arguments(self) -> impl Iterator<Item = String> {
        let memory = [("--overcommit-memory", self.gpu_memory), ("--host-memory", self.host_memory)];
        let numa = self.numa.map(|node| ("--gpu-numa-node", node.into()));
        memory.into_iter().chain(numa).flat_map(|(flag, value)| [flag.to_owned(), value.to_string()])
    }
}

/// How the manager of each GPU is started.
#[derive(Debug, Clone)]
pub struct ManagerCommand {
    /// The `sluice` program.
    pub program: PathBuf,
    /// Folder of the sockets that pods reach: `<gpu-uuid>.sock` in it.
    pub socket_folder: PathBuf,
    /// Folder of the control sockets that only the agent reaches.
    pub control_folder: PathBuf,
    /// Whether descriptors of a simulator are accepted as control descriptors.
    pub simulated: bool,
    /// Further arguments of `sluice pod-manager`.
    pub arguments: Vec<OsString>,
}

impl ManagerCommand {
    /// The socket that the processes on this GPU attach to.
    #[must_use]
    pub fn socket(&self, gpu: &str) -> PathBuf {
        self.socket_folder.join(format!("{gpu}.sock"))
    }

    /// The control socket of this GPU's manager.
    #[must_use]
    pub fn control(&self, gpu: &str) -> PathBuf {
        self.control_folder.join(format!("{gpu}.sock"))
    }

    /// The socket on which `sluice trace` reads what this GPU's manager does. Pods do not see it.
    #[must_use]
    pub fn trace(&self, gpu: &str) -> PathBuf {
        self.control_folder.join(format!("{gpu}.trace"))
    }

    /// The directory of the managers' tables of gangs. Pods do not see it.
    #[must_use]
    pub fn gangs(&self) -> PathBuf {
        self.control_folder.join("gangs")
    }

    /// Starts the manager of a GPU. `node_gpus` is the number of the node's GPUs, whose managers lock the driver for
    /// each other. `overcommit` is what clients share whose memory may leave the GPU, `escrow` the manager's end of the escrow socket, `result` the file with the GPU's self-test
    /// result.
    ///
    /// Its output goes where the agent's output goes. It dies with this process (`--parent`), and by the kernel's rule
    /// also with the *thread* that starts it. So call this on a thread that lasts, as tokio's workers do.
    pub(crate) fn start(
        &self,
        gpu: &str,
        node_gpus: usize,
        overcommit: Option<Overcommit>,
        escrow: Option<OwnedFd>,
        result: Option<&Path>,
    ) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(["--parent", &std::process::id().to_string(), "pod-manager", "--gpu-uuid", gpu])
            .arg("--socket")
            .arg(self.socket(gpu))
            .arg("--control")
            .arg(self.control(gpu))
            .args(["--node-gpus", &node_gpus.clamp(1, MAX_NODE_GPUS).to_string()])
            .arg("--trace")
            .arg(self.trace(gpu))
            .arg("--gangs")
            .arg(self.gangs())
            .args(overcommit.into_iter().flat_map(Overcommit::arguments))
            .args(&self.arguments)
            .args(result.map(|file| [OsStr::new("--self-test"), file.as_os_str()]).into_iter().flatten())
            .args(escrow.is_some().then_some("--custody"))
            .stdin(escrow.map_or_else(Stdio::null, Stdio::from))
            .kill_on_drop(true);
        // A preload that is meant for hooked processes must not affect the manager.
        command.env_remove("LD_PRELOAD");
        command.spawn()
    }
}

/// Ends a manager: SIGTERM, a grace period, then SIGKILL.
pub(crate) async fn end(gpu: &str, child: &mut Child) -> std::io::Result<ExitStatus> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid {
        // It may have ended just now. Then the signal has no target, and `wait` returns at once.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if let Ok(ended) = tokio::time::timeout(GRACE, child.wait()).await {
        return ended;
    }
    warn!(gpu, grace_s = GRACE.as_secs(), "the pod-manager did not end after SIGTERM; killing it");
    child.kill().await?;
    child.wait().await
}
