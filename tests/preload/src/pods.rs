//! A pod-manager as the node agent runs it, and pods: processes in cgroups like kubelet's, which are what the manager knows them by.
//! Needs root and a hierarchy to make cgroups in.

use crate::artifacts;
use crate::http;
use crate::node::{Node, NodeOptions};
use crate::patience::{PATIENCE, eventually};
use crate::tenant::TenantOptions;
use sluice_proto::control::pod_manager_client::PodManagerClient;
use sluice_proto::control::{Class, Client, SetClientsRequest};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tonic::transport::Endpoint;

/// The uuid of the node's simulated GPU.
pub const GPU: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";

/// Where hierarchies are mounted, the likeliest first.
const HIERARCHIES: [&str; 4] =
    ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup"];

/// A node whose pod-manager is told by an agent, and recognises pods.
pub struct Pods {
    /// The rest of the node.
    pub node: Node,
    /// Managers of other tests see the same processes, and do not know them by their pods.
    world: usize,
    root: PathBuf,
    clients: Vec<Client>,
    manager: Option<Child>,
    metrics: SocketAddr,
    arguments: Vec<String>,
}

impl Pods {
    /// With these pods as clients: number, class and quota in percent. The manager gets `arguments` too. `None`, with a word about
    /// it, where no cgroup can be made.
    ///
    /// # Panics
    /// When something does not start.
    pub fn start(clients: &[(usize, Class, u32)], arguments: &str) -> Option<Self> {
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let root = plant(world).inspect_err(skipped).ok()?;
        let node =
            NodeOptions::default().without_manager().simulator_arguments(&format!("--uuid {GPU}")).start();
        let clients = clients.iter().map(|(n, class, percent)| Client {
            pod_uid: uid(world, *n),
            namespace: "ml".into(),
            pod: format!("pod-{n}"),
            class: (*class).into(),
            quota_ppm: percent * 10_000,
            limit_ppm: 1_000_000,
            memory_bytes: 8 << 30,
            weight: 1,
            slo_ns: 0,
        });
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        let (clients, metrics) = (clients.collect(), http::free_address());
        let mut pods = Self { node, world, root, clients, manager: None, metrics, arguments };
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
        let log = self.node.path().join("manager.log");
        let log = File::options().create(true).append(true).open(log);
        let log = log.unwrap_or_else(|error| panic!("opening the manager's log: {error}"));
        let manager = Command::new(&artifacts::built().sluice)
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
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.manager = Some(manager.unwrap_or_else(|error| panic!("starting the pod-manager: {error}")));
        eventually("the control socket", || control.exists().then_some(()));
        let request = SetClientsRequest {
            generation: 1,
            agent_instance: "agent".into(),
            clients: self.clients.clone(),
        };
        tell(&control, request);
    }

    /// Kills the pod-manager as an out-of-memory killer would.
    pub fn kill_manager(&mut self) {
        if let Some(mut manager) = self.manager.take() {
            let _ = manager.kill();
            let _ = manager.wait();
        }
    }

    /// A process of a pod: `programs/NAME.c` under the hook, or without it by [`TenantOptions::without_hook`].
    ///
    /// # Panics
    /// When its cgroup cannot be made.
    pub fn tenant(&self, n: usize, program: &str) -> TenantOptions {
        let container = format!("{:0<64}", self.uid(n).replace('-', ""));
        let cgroup = self.root.join(format!("kubepods/burstable/pod{}/{container}", self.uid(n)));
        fs::create_dir_all(&cgroup).unwrap_or_else(|error| panic!("making {}: {error}", cgroup.display()));
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", cgroup.display());
        self.node.tenant(&format!("ml/pod-{n}"), program).through_shell(&script)
    }

    fn uid(&self, n: usize) -> String {
        uid(self.world, n)
    }

    /// One of a pod's figures; 0 if there is none.
    ///
    /// # Panics
    /// When the manager does not serve metrics.
    pub fn metric(&self, name: &str, n: usize, more: &[&str]) -> f64 {
        let text = http::get(self.metrics, "/metrics").unwrap_or_else(|error| panic!("scraping: {error}"));
        let pod = format!("pod_uid=\"{}\"", self.uid(n));
        http::sample(&text, name, &[&[pod.as_str()], more].concat()).unwrap_or(0.0)
    }

    /// One of the manager's own figures; 0 if there is none.
    ///
    /// # Panics
    /// When the manager does not serve metrics.
    pub fn figure(&self, name: &str, labels: &[&str]) -> f64 {
        let text = http::get(self.metrics, "/metrics").unwrap_or_else(|error| panic!("scraping: {error}"));
        http::sample(&text, name, labels).unwrap_or(0.0)
    }

    /// Waits until so many processes of a pod that have no hook are steered.
    ///
    /// # Panics
    /// When they never are.
    #[track_caller]
    pub fn when_adopted(&self, n: usize, processes: f64) {
        eventually(&format!("{processes} adopted processes of pod {n}"), || {
            (self.metric("sluice_adopted_processes", n, &[]) == processes).then_some(())
        });
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.kill_manager();
        // Who is in them is killed by whoever started it, maybe a moment later: then they stay for the next start of the machine.
        remove(&self.root);
    }
}

/// Worlds of this test program so far.
static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// The n-th pod's uid, like nobody else's on this machine.
fn uid(world: usize, n: usize) -> String {
    format!("0b6b5d2c-6a4e-4f0b-{:04}-{:08}{n:04}", world % 10_000, std::process::id())
}

/// A folder of cgroups of our own, or why there is none.
fn plant(world: usize) -> Result<PathBuf, String> {
    let name = format!("sluice-preload-{}-{world}", std::process::id());
    let mut why = String::new();
    for hierarchy in HIERARCHIES {
        let root = Path::new(hierarchy).join(&name);
        // A file system that is no hierarchy has no such file after mkdir.
        match fs::create_dir(&root).map(|()| root.join("cgroup.procs").exists()) {
            Ok(true) => return Ok(root),
            Ok(false) => drop(fs::remove_dir(&root)),
            Err(error) => why = format!("{hierarchy}: {error}"),
        }
    }
    Err(why)
}

fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(folder);
}

fn tell(control: &Path, request: SetClientsRequest) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("starting tokio: {error}"));
    let told = runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", control.display()))?.timeout(PATIENCE);
        let mut manager = PodManagerClient::new(endpoint.connect().await?);
        Ok::<_, Box<dyn std::error::Error>>(manager.set_clients(request).await?)
    });
    if let Err(error) = told {
        panic!("telling the pod-manager its clients: {error}");
    }
}

/// Says so past the test's captured output, which nobody sees of a test that passes.
fn skipped(why: &String) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: no cgroup can be made here ({why})");
}
