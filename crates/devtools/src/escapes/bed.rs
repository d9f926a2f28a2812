//! A node with two pods: the pod of the attempt, with a request of 0.3, and its neighbour. Processes are identified by their cgroups, as on
//! a cluster.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{Class, Client, SetClientsRequest};
use sluice_test_bed::{
    Interrupts, Metrics, NoLine, Output, PodCgroups, Process, SimulatedGpu, TestBed, TestBedOptions, http,
};
use tonic::transport::Endpoint;

use super::attempts::{Attempt, MEMORY_LIMIT, Neighbour, Start};
use super::programs::Programs;
use super::readings::MemoryReports;

/// The simulated GPU.
const GPU: &str = "GPU-e5ca4e00-89ab-cdef-0123-456789abcdef";
/// Labels of the pods' processes in the simulator's ledger.
pub(super) const ATTEMPT: &str = "attempt";
pub(super) const NEIGHBOUR: &str = "neighbour";
/// How long a daemon or a program may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A running node. Processes are dropped before the bed's directory.
pub(super) struct EscapeBed {
    reports: Option<MemoryReports>,
    manager: Option<Process>,
    cgroups: PodCgroups,
    metrics: SocketAddr,
    /// UUID of the GPU.
    gpu: String,
    is_simulated: bool,
    bed: TestBed,
}

impl EscapeBed {
    /// Starts it.
    pub(super) fn start(
        programs: &Programs,
        attempt: &Attempt,
        manager_flags: &str,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Self> {
        let cgroups = PodCgroups::create(&format!("sluice-escapes-{}", std::process::id()));
        let cgroups =
            cgroups.map_err(|why| anyhow::anyhow!("no cgroup can be made here ({why}): run it as root"))?;
        let options = TestBedOptions {
            simulated: programs.are_simulated(),
            simulator_flags: vec!["--uuid".to_owned(), GPU.to_owned()],
            with_manager: false,
            directory_prefix: "sluice-escape-".to_owned(),
            ..TestBedOptions::default()
        };
        let bed = TestBed::start(programs.artifacts.clone(), options, || interrupts.pause())?;
        // The hook lies here, so this is what the node agent puts beside it.
        let settings = format!("SLUICE_SOCKET={}\n", bed.manager_socket().display());
        fs::write(bed.path().join("node.env"), settings)?;
        let is_simulated = programs.are_simulated();
        let gpu = if is_simulated { GPU.to_owned() } else { uuid_of_first_gpu()? };
        let metrics = http::free_address()?;
        let mut node = Self { reports: None, manager: None, cgroups, metrics, gpu, is_simulated, bed };
        node.start_manager(manager_flags, attempt, interrupts)?;
        Ok(node)
    }

    fn start_manager(
        &mut self,
        flags: &str,
        attempt: &Attempt,
        interrupts: &Interrupts,
    ) -> anyhow::Result<()> {
        let control = self.bed.path().join("control.sock");
        let mut command = self.bed.sluice();
        let controls = if self.is_simulated { "--controls=simulated" } else { "--controls=auto" };
        command.args(["pod-manager", "--gpu-uuid", &self.gpu, controls]);
        command.args(flags.split_whitespace()).args(["--metrics", &self.metrics.to_string()]);
        command.arg("--socket").arg(self.bed.manager_socket()).arg("--control").arg(&control);
        // For the driver's lock.
        self.bed.set_gpu(&mut command, "manager");
        command.env("RUST_LOG", "info").env("NO_COLOR", "1");
        let mut manager = Process::start("pod-manager", command, self.bed.path(), Output::Log)?;
        let end = Instant::now() + READY_TIMEOUT;
        while !control.exists() {
            manager.check_running()?;
            if Instant::now() >= end {
                bail!("the pod-manager does not serve{}", manager.log_tail());
            }
            interrupts.pause()?;
        }
        self.manager = Some(manager);
        send_clients(&control, clients(attempt))?;
        if self.is_simulated {
            let pods = [(ATTEMPT, uid(1)), (NEIGHBOUR, uid(2))];
            self.reports = Some(MemoryReports::begin(&control, self.bed.gpu(), pods.into())?);
        }
        Ok(())
    }

    /// A process of pod `n`, whose ledger row is `label`.
    pub(super) fn process(
        &self,
        n: usize,
        label: &str,
        program: &Path,
        arguments: &[&str],
        start: Start,
    ) -> anyhow::Result<Process> {
        let cgroup = self.cgroups.of_pod(&uid(n))?;
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", cgroup.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", "env"]);
        if !matches!(start, Start::Unhooked | Start::Joining) {
            command.arg(format!("LD_PRELOAD={}", self.bed.hook().display()));
        }
        if let Start::With(name, value) = start {
            command.arg(format!("{name}={value}"));
        }
        command.arg(program).args(arguments).current_dir(self.bed.path());
        self.bed.set_gpu(&mut command, label);
        self.bed.set_manager(&mut command, "unknown");
        Process::start(label, command, self.bed.path(), Output::Lines)
    }

    /// Waits until a program prints `expected`.
    pub(super) fn wait_for_line(&self, process: &mut Process, expected: &str) -> anyhow::Result<()> {
        match process.next_line(Instant::now() + READY_TIMEOUT) {
            Ok(line) if line == expected => Ok(()),
            Ok(line) => bail!("{} printed {line:?}, expected {expected:?}", process.name()),
            Err(NoLine::TimedOut) => {
                bail!("{} does not print {expected:?}{}", process.name(), process.log_tail())
            }
            Err(NoLine::Closed) => bail!("{} ended early{}", process.name(), process.log_tail()),
        }
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Kernels that the neighbour has completed.
    pub(super) fn neighbours_count(&self) -> anyhow::Result<u64> {
        let bytes = fs::read(self.bed.path().join("count"))?;
        Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
    }

    pub(super) fn gpu(&self) -> SimulatedGpu {
        self.bed.gpu()
    }

    /// Whether the manager has counted a violation of pod `n`, or schedules a process of it from outside.
    pub(super) fn is_detected(&self, n: usize) -> bool {
        let pod = format!("pod_uid=\"{}\"", uid(n));
        // A manager that the machine does not run in time answers the next scrape.
        let metrics = Metrics::scrape(self.metrics).unwrap_or_default();
        ["sluice_violations_total", "sluice_adopted_processes"]
            .iter()
            .any(|name| metrics.sum(name, &[&pod]).is_some_and(|value| value > 0.0))
    }

    /// Copies all logs.
    pub(super) fn copy_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.bed.copy_logs(to)
    }
}

/// The UUID of this machine's first GPU, by NVML.
pub(crate) fn uuid_of_first_gpu() -> anyhow::Result<String> {
    let nvml = nvml_wrapper::Nvml::init().context("cannot load NVML")?;
    nvml.device_by_index(0).and_then(|gpu| gpu.uuid()).context("NVML names no GPU")
}

/// The uid of a pod. Other programs' cgroups may exist on this machine, so it contains this process's id.
fn uid(n: usize) -> String {
    format!("e5ca4e00-6a4e-4f0b-0000-{:08}{n:04}", std::process::id())
}

fn clients(attempt: &Attempt) -> Vec<Client> {
    let client = |n, class: Class, quota_ppm, limit_ppm, memory_bytes| Client {
        pod_uid: uid(n),
        namespace: "ml".into(),
        pod: format!("pod-{n}"),
        class: class.into(),
        quota_ppm,
        limit_ppm,
        memory_bytes,
        ..Client::default()
    };
    let (class, quota_ppm) = match attempt.neighbour {
        Neighbour::Busy => (Class::BestEffort, 700_000),
        Neighbour::Critical => (Class::LatencyCritical, 200_000),
    };
    let limit_ppm = if attempt.is_limited { 300_000 } else { 1_000_000 };
    vec![
        client(1, Class::BestEffort, 300_000, limit_ppm, MEMORY_LIMIT),
        client(2, class, quota_ppm, 1_000_000, 8 << 30),
    ]
}

fn send_clients(control: &Path, clients: Vec<Client>) -> anyhow::Result<()> {
    let request = SetClientsRequest { generation: 1, agent_instance: "escapes".into(), clients };
    let address = format!("unix://{}", PathBuf::from(control).display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(address)?.timeout(READY_TIMEOUT);
        PodManagerClient::new(endpoint.connect().await?).set_clients(request).await?;
        anyhow::Ok(())
    })
}
