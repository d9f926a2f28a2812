//! A pod-manager as the node agent runs it, and pods: processes in cgroups like kubelet's, by which the manager identifies them. Needs
//! root and a writable cgroup hierarchy.

use crate::artifacts;
use crate::node::{Node, NodeOptions};
use crate::tenant::TenantOptions;
use crate::waiting::{TIMEOUT, eventually};
use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{Class, Client, SetClientsRequest};
use sluice_test_bed::{Metrics, Output, PodCgroups, Process, http};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tonic::transport::Endpoint;

/// The uuid of the node's simulated GPU.
pub const GPU: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";

/// A node whose pod-manager gets its clients from an agent and identifies pods by their cgroups.
pub struct PodBed {
    /// The simulated GPU and the tenants.
    pub node: Node,
    /// Part of the pod uids, because managers of other tests see the same processes.
    bed_number: usize,
    cgroups: PodCgroups,
    clients: Vec<Client>,
    manager: Option<Process>,
    metrics: SocketAddr,
    arguments: Vec<String>,
}

impl PodBed {
    /// Starts it with these pods as clients: number, class and quota in percent. The manager gets `arguments` too. Prints a message and
    /// returns `None` where no cgroup can be created.
    ///
    /// # Panics
    /// When something does not start.
    pub fn start(clients: &[(usize, Class, u32)], arguments: &str) -> Option<Self> {
        let bed_number = BEDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-preload-{}-{bed_number}", std::process::id());
        let cgroups = PodCgroups::create(&name).inspect_err(skipped).ok()?;
        let node =
            NodeOptions::default().without_manager().simulator_arguments(&format!("--uuid {GPU}")).start();
        let clients = clients.iter().map(|(n, class, percent)| Client {
            pod_uid: uid(bed_number, *n),
            namespace: "ml".into(),
            pod: format!("pod-{n}"),
            class: (*class).into(),
            quota_ppm: percent * 10_000,
            limit_ppm: 1_000_000,
            memory_bytes: 8 << 30,
            ..Client::default()
        });
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        let (clients, metrics) = (clients.collect(), free_address());
        let mut pods = Self { node, bed_number, cgroups, clients, manager: None, metrics, arguments };
        pods.start_manager();
        Some(pods)
    }

    /// Starts a pod-manager, which knows the clients when this returns.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_manager(&mut self) {
        let control = self.node.path().join("control.sock");
        let _ = fs::remove_file(&control);
        let mut command = Command::new(&artifacts::built().sluice);
        command
            .args(["--parent", &std::process::id().to_string(), "pod-manager", "--gpu-uuid", GPU])
            .args([
                "--controls=simulated",
                "--adopt=auto",
                "--metrics",
                &self.metrics.to_string(),
                "--socket",
            ])
            .arg(self.node.socket())
            .arg("--control")
            .arg(&control)
            .args(&self.arguments)
            // For the driver's lock.
            .env("SLUICE_SIM_SOCKET", self.node.simulator())
            .env("LD_LIBRARY_PATH", &artifacts::built().driver)
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1");
        let manager = Process::start("pod-manager", command, self.node.path(), Output::Log);
        self.manager = Some(manager.unwrap_or_else(|error| panic!("{error:#}")));
        eventually("the control socket", || control.exists().then_some(()));
        let request = SetClientsRequest {
            generation: 1,
            agent_instance: "agent".into(),
            clients: self.clients.clone(),
        };
        send_clients(&control, request);
    }

    /// Kills the pod-manager as an out-of-memory killer does, and waits until it is gone.
    pub fn kill_manager(&mut self) {
        self.manager = None;
    }

    /// A process of a pod: `programs/NAME.c` under the hook, or without it by [`TenantOptions::without_hook`].
    ///
    /// # Panics
    /// When its cgroup cannot be made.
    pub fn tenant(&self, n: usize, program: &str) -> TenantOptions {
        let cgroup = self.cgroups.of_pod(&self.uid(n)).unwrap_or_else(|error| panic!("{error:#}"));
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", cgroup.display());
        self.node.tenant(&format!("ml/pod-{n}"), program).through_shell(&script)
    }

    fn uid(&self, n: usize) -> String {
        uid(self.bed_number, n)
    }

    /// A metric of a pod; 0 if there is none.
    ///
    /// # Panics
    /// When the manager does not serve metrics.
    pub fn metric(&self, name: &str, n: usize, more: &[&str]) -> f64 {
        let pod = format!("pod_uid=\"{}\"", self.uid(n));
        self.metrics().sum(name, &[&[pod.as_str()], more].concat()).unwrap_or(0.0)
    }

    /// A metric of the manager; 0 if there is none.
    ///
    /// # Panics
    /// When the manager does not serve metrics.
    pub fn figure(&self, name: &str, labels: &[&str]) -> f64 {
        self.metrics().sum(name, labels).unwrap_or(0.0)
    }

    fn metrics(&self) -> Metrics {
        Metrics::scrape_within(TIMEOUT, self.metrics).unwrap_or_else(|error| panic!("scraping: {error:#}"))
    }

    /// Waits until this number of the pod's processes without the hook is scheduled by the manager.
    ///
    /// # Panics
    /// When they never are.
    #[track_caller]
    pub fn when_scheduled_without_hook(&self, n: usize, processes: f64) {
        eventually(&format!("{processes} scheduled processes without the hook in pod {n}"), || {
            (self.metric("sluice_adopted_processes", n, &[]) == processes).then_some(())
        });
    }
}

impl Drop for PodBed {
    fn drop(&mut self) {
        // A process in a cgroup is killed by its own owner, maybe later. The cgroup then remains until the machine restarts.
        self.kill_manager();
    }
}

/// Number of pod beds of this test program so far.
static BEDS: AtomicUsize = AtomicUsize::new(0);

/// The n-th pod's uid, unique on this machine.
fn uid(bed_number: usize, n: usize) -> String {
    format!("0b6b5d2c-6a4e-4f0b-{:04}-{:08}{n:04}", bed_number % 10_000, std::process::id())
}

fn send_clients(control: &Path, request: SetClientsRequest) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("starting tokio: {error}"));
    let sent = runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", control.display()))?.timeout(TIMEOUT);
        let mut manager = PodManagerClient::new(endpoint.connect().await?);
        Ok::<_, Box<dyn std::error::Error>>(manager.set_clients(request).await?)
    });
    if let Err(error) = sent {
        panic!("sending the clients to the pod-manager: {error}");
    }
}

/// Prints a message past the test's captured output, which is not shown for a test that passes.
fn skipped(why: &String) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: no cgroup can be made here ({why})");
}

fn free_address() -> SocketAddr {
    http::free_address().unwrap_or_else(|error| panic!("finding a free port: {error}"))
}
