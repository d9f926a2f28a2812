//! The node agent, which runs the pod-manager: with an API server of the soak's own, without a kubelet. Tenants are pods, which the
//! manager identifies by their cgroups.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_test_bed::{Output, PodCgroups, Process, TestBed, http};

use super::api_server::{ApiServer, NODE};
use super::census::processes_of;
use super::clients::{CLIENTS, Client};

/// The simulated GPU, as its driver spells it.
pub(super) const GPU: &str = "GPU-50a4c001-89ab-cdef-0123-456789abcdef";
/// How long the agent may take to end: it gives its manager 5 s.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The agent, and what outlives it.
#[derive(Debug)]
pub(super) struct Agent {
    process: Option<Process>,
    cgroups: PodCgroups,
    folder: PathBuf,
    /// Addresses of the agent's pages and probes, and of the manager's metrics.
    addresses: [SocketAddr; 3],
}

/// The uid of a client's pod. Cgroups of other programs may exist on this machine, so it contains this process's id.
fn uid(client: usize) -> String {
    format!("50a4c001-6a4e-4f0b-0000-{:08}{client:04}", std::process::id())
}

fn pod(number: usize, client: &Client) -> Value {
    let Client { name, class, request, limit, memory_mib, .. } = client;
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "soak", "uid": uid(number), "resourceVersion": "1",
            "annotations": {
                "sluice.dev/quota": request.to_string(), "sluice.dev/limit": limit.to_string(),
                "sluice.dev/memory": format!("{memory_mib}Mi"), "sluice.dev/priority": class,
                "sluice.dev/assigned-gpu": GPU,
            },
        },
        "spec": {"nodeName": NODE, "containers": [
            {"name": "main", "resources": {"limits": {"sluice.dev/gpu": "1"}}},
        ]},
        "status": {"phase": "Running"},
    })
}

impl Agent {
    /// Prepares everything and starts it. The inner error is the reason why pods cannot be made on this machine.
    pub(super) fn start(bed: &TestBed) -> anyhow::Result<Result<Self, String>> {
        let cgroups = match PodCgroups::create(&format!("sluice-soak-{}", std::process::id())) {
            Ok(cgroups) => cgroups,
            Err(why) => return Ok(Err(format!("no cgroup can be made here ({why})"))),
        };
        // The pod-manager's sockets have paths of at most 80 bytes.
        let folder = bed.path().to_path_buf();
        fs::create_dir_all(folder.join("plugins")).context("cannot make the agent's folder")?;
        let server =
            ApiServer::start(CLIENTS.iter().enumerate().map(|(n, client)| pod(n, client)).collect())?;
        fs::write(folder.join("kubeconfig"), server.kubeconfig().to_string())?;
        let addresses = [http::free_address()?, http::free_address()?, http::free_address()?];
        let mut agent = Self { process: None, cgroups, folder, addresses };
        agent.start_process(bed)?;
        Ok(Ok(agent))
    }

    /// Starts the agent's process, as kubelet does.
    pub(super) fn start_process(&mut self, bed: &TestBed) -> anyhow::Result<()> {
        let [pages, health, metrics] = self.addresses;
        let path = |name: &str| self.folder.join(name);
        let mut command = bed.sluice();
        command.args(["node-agent", "--node", NODE, "--controls=simulated", "--self-test=off"]);
        command.args([
            "--on-manager-loss=closed",
            "--http",
            &pages.to_string(),
            "--health",
            &health.to_string(),
            "--state-page=127.0.0.1:0",
        ]);
        command.arg(format!("--manager-argument=--metrics={metrics}"));
        command.arg("--library").arg(bed.hook()).arg("--state-folder").arg(path("s"));
        command.arg("--socket-folder").arg(path("run")).arg("--plugin-folder").arg(path("plugins"));
        bed.set_gpu(&mut command, "agent");
        command.env("KUBECONFIG", path("kubeconfig")).env("RUST_LOG", "info").env("NO_COLOR", "1");
        command.env("TMPDIR", path("tmp"));
        self.process = Some(Process::start("node-agent", command, bed.path(), Output::Log)?);
        Ok(())
    }

    /// Kills the agent. The kernel kills its manager then.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Ends the agent with SIGTERM.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        kill(Pid::from_raw(process.pid()), Signal::SIGTERM).context("cannot end the agent")?;
        match process.wait(Instant::now() + END_TIMEOUT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the agent ended with {status}{}", process.log_tail()),
            None => bail!("the agent does not end{}", process.log_tail()),
        }
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Process::pid)
    }

    /// The agent's manager, while there is one.
    pub(super) fn manager_pid(&self) -> Option<i32> {
        let agent = self.pid()?;
        let is_manager = |command: &str| command.contains(" pod-manager ");
        let processes = processes_of(&self.folder);
        processes
            .iter()
            .find(|one| one.parent == agent && one.state != 'Z' && is_manager(&one.command))
            .map(|one| one.pid)
    }

    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        self.process.iter_mut().try_for_each(Process::check_running)
    }

    /// The socket of the manager.
    pub(super) fn manager_socket(&self) -> PathBuf {
        self.folder.join("run").join(format!("{GPU}.sock"))
    }

    /// The folders in which an ended agent and manager leave no socket.
    pub(super) fn socket_folders(&self) -> [PathBuf; 3] {
        ["run", "s/control", "plugins"].map(|name| self.folder.join(name))
    }

    pub(super) fn manager_metrics(&self) -> SocketAddr {
        self.addresses[2]
    }

    /// The cgroup of a client's processes.
    pub(super) fn cgroup(&self, client: usize) -> anyhow::Result<PathBuf> {
        self.cgroups.of_pod(&uid(client))
    }
}
