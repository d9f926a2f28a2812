//! The configuration of the agent: flags and two environment variables, checked together. Every mistake is reported at
//! once.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use sluice_placement::sandboxes::{self, SandboxRuntimeClasses};

use crate::gpu_path::GpuPath;
use crate::injection_proof::{OWN_DRIVER, OwnPath};
use crate::lost_gpus::LostGpuPolicy;
use crate::nri::{CdiFolders, Injection, Places, VISIBLE_DEVICES};
use crate::{gpus, lost_gpus, managers};

/// Allowed number of device slots per GPU; each is a pod that may share the GPU.
const SLOTS: std::ops::RangeInclusive<u32> = 1..=1000;

/// `sluice node-agent`: serve one node.
///
/// All values are text here. [`Config::read`] checks them, so that all mistakes are reported together.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Arguments {
    /// This node's name; the variable NODE_NAME by default
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Pods that may share one GPU, 1 to 1000
    #[arg(long, value_name = "SLOTS", default_value = "10")]
    seats_per_gpu: String,
    /// What programs do while no manager answers: open (launch without grants) or closed (hold their launches)
    #[arg(long, value_name = "open|closed")]
    on_manager_loss: Option<String>,
    /// How containers get their GPUs: by NRI and CDI, by NVIDIA's container runtime, or by NRI where that is possible
    #[arg(long, value_enum, default_value_t)]
    injection: Injection,
    /// Address of /metrics, /livez and /readyz; [::] stands for all addresses, IPv4 ones included
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9400")]
    http: String,
    /// Port of /livez and /readyz for kubelet, at the address of --http, or another address with its port
    #[arg(long, value_name = "PORT|ADDRESS", default_value = "9405")]
    health: String,
    /// Loopback address of /state, which names pods and asks for no authentication
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9407")]
    state_page: String,
    /// Give the GPUs of this node by claims (DRA) if it has the label sluice.dev/dra=true at the start, and not as device slots
    #[arg(long)]
    dra: bool,
    /// RuntimeClasses whose containers run in a sandbox with a kernel of its own, comma-separated; a `*` at the end stands for any
    /// rest. Claims of pods that name one are refused
    #[arg(long, value_name = "NAMES", default_value = sandboxes::DEFAULT)]
    sandbox_runtime_classes: String,
    #[command(flatten)]
    host: HostArguments,
    /// File with settings for the nodes with certain labels, which take precedence over these flags
    #[arg(long, value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,
    /// Only give the driver to the container `node-agent` of this pod, by NRI and CDI, and answer /readyz at --health
    #[arg(long, conflicts_with = "cleanup")]
    own_driver: bool,
    /// Remove what an uninstalled Sluice left on this node, once no pod uses it, then exit
    #[arg(long)]
    cleanup: bool,
    /// After a cleanup, keep running until a signal: for a DaemonSet, whose pods must not end
    #[arg(long, requires = "cleanup")]
    stay: bool,
}

// Where things are on the node, and how its GPUs and managers are treated. No documentation comment: `clap` would show
// it in place of the command's.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct HostArguments {
    /// The library that pods get mounted
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/sluice/libsluice.so")]
    pub(crate) library: PathBuf,
    /// Folder for the state that the agent keeps on the node
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/sluice")]
    pub(crate) state_folder: PathBuf,
    /// Folder of the managers' sockets, mounted read-only into pods
    #[arg(long, value_name = "FOLDER", default_value = "/run/sluice")]
    pub(crate) socket_folder: PathBuf,
    /// Kubelet's folder of device plugin sockets
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/device-plugins")]
    pub(crate) plugin_folder: PathBuf,
    /// Kubelet's root folder, by the same path as on the node: where it looks for the sockets of DRA drivers
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    pub(crate) kubelet_folder: PathBuf,
    /// Socket of the container runtime for NRI
    #[arg(long, value_name = "FILE", default_value = "/var/run/nri/nri.sock")]
    pub(crate) nri_socket: PathBuf,
    /// Folder with CDI specifications; may be repeated
    #[arg(long = "cdi-folder", value_name = "FOLDER", default_values = ["/etc/cdi", "/var/run/cdi"])]
    pub(crate) cdi_folders: Vec<PathBuf>,
    /// The /proc of the node
    #[arg(long, value_name = "FOLDER", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) gpu: gpus::Flags,
    #[command(flatten)]
    pub(crate) lost_gpus: lost_gpus::Flags,
    #[command(flatten)]
    pub(crate) managers: managers::Flags,
    /// Further argument of every pod-manager, such as --manager-argument=--window-ms=5000; may be repeated
    #[arg(long = "manager-argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) manager_arguments: Vec<OsString>,
}

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This node's name.
    pub node: String,
    /// Pods that may share one GPU.
    pub slots_per_gpu: u32,
    /// What programs do while no manager answers, `open` (launch without grants) or `closed` (hold their launches);
    /// `None` leaves the programs' own default.
    pub on_manager_loss: Option<String>,
    /// How containers get their GPUs.
    pub injection: Injection,
    /// Whether GPUs are given by claims, and not as device slots, on the nodes with the label.
    pub dra: bool,
    /// RuntimeClasses whose pods get no claim prepared.
    pub sandboxes: SandboxRuntimeClasses,
    /// The path by which this container got the driver.
    pub own_path: OwnPath,
    /// Address of the HTTP pages.
    pub http: SocketAddr,
    /// Address of the probes.
    pub health: SocketAddr,
    /// Loopback address of /state.
    pub state_page: SocketAddr,
    pub(crate) host: HostArguments,
    /// Whether to serve the node or to clean it up.
    pub task: Task,
}

/// What the agent was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Serve the node.
    Serve,
    /// Give the agent's own container the driver.
    OwnDriver,
    /// Remove what is left of Sluice on the node.
    Cleanup {
        /// Keep running afterwards.
        stay: bool,
    },
}

/// All mistakes of a configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {}", .0.join("; "))]
pub struct ConfigMistakes(Vec<String>);

impl Config {
    /// Folder of the versions of the library.
    #[must_use]
    pub fn library_folder(&self) -> PathBuf {
        self.host.state_folder.join("lib")
    }

    /// Folder of the managers' control sockets, which is never mounted into pods.
    #[must_use]
    pub fn control_folder(&self) -> PathBuf {
        self.host.state_folder.join("control")
    }

    /// Folder of the self-tests' results, where self-tests may also write.
    #[must_use]
    pub fn self_test_folder(&self) -> PathBuf {
        self.host.state_folder.join("self-test")
    }

    /// Where the container runtime and CDI specifications are.
    #[must_use]
    pub fn nri_places(&self) -> Places {
        Places { socket: self.host.nri_socket.clone(), cdi: CdiFolders(self.host.cdi_folders.clone()) }
    }

    /// Checks all values. `variable` reads the environment.
    ///
    /// # Errors
    /// All mistakes: which flag, what was found, what is allowed.
    pub fn read(
        arguments: &Arguments,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigMistakes> {
        let mut mistakes = Vec::new();
        let mut wrong = |flag: &str, found: &str, allowed: &str| {
            mistakes.push(format!("--{flag} is {found:?}, expected {allowed}"));
        };
        let node = arguments.node.clone().or_else(|| variable("NODE_NAME")).unwrap_or_default();
        if node.is_empty() {
            wrong("node", "", "the node's name, there or in NODE_NAME");
        }
        let slots = u32::from_str(&arguments.seats_per_gpu).ok().filter(|slots| SLOTS.contains(slots));
        if slots.is_none() {
            wrong("seats-per-gpu", &arguments.seats_per_gpu, "a number from 1 to 1000");
        }
        if let Some(other) = &arguments.on_manager_loss
            && !["open", "closed"].contains(&other.as_str())
        {
            wrong("on-manager-loss", other, "open or closed");
        }
        let mut address = |flag, text: &str| {
            let address = SocketAddr::from_str(text).ok();
            if address.is_none() {
                wrong(flag, text, "an address and a port, such as 0.0.0.0:9400 or [::]:9400");
            }
            address
        };
        let http = address("http", &arguments.http);
        let health = match (u16::from_str(&arguments.health), http) {
            (Ok(port), http) => http.map(|http| SocketAddr::new(http.ip(), port)),
            (Err(_), _) => address("health", &arguments.health),
        };
        let state_page = address("state-page", &arguments.state_page);
        let addresses = http.zip(health);
        if let Some((_, health)) = addresses.filter(|(http, health)| collide(*http, *health)) {
            wrong("health", &arguments.health, &format!("another port than {} of --http", health.port()));
        }
        if state_page.is_some_and(|address| !address.ip().is_loopback()) {
            wrong("state-page", &arguments.state_page, "a loopback address, such as 127.0.0.1:9407");
        }
        let taken =
            |address: SocketAddr| [http, health].into_iter().flatten().any(|one| collide(one, address));
        if state_page.is_some_and(taken) {
            wrong("state-page", &arguments.state_page, "another port than those of --http and --health");
        }
        let paths = [
            ("library", &arguments.host.library),
            ("state-folder", &arguments.host.state_folder),
            ("socket-folder", &arguments.host.socket_folder),
            ("plugin-folder", &arguments.host.plugin_folder),
            ("kubelet-folder", &arguments.host.kubelet_folder),
            ("proc", &arguments.host.proc),
            ("nri-socket", &arguments.host.nri_socket),
        ];
        let folders = arguments.host.cdi_folders.iter().map(|folder| ("cdi-folder", folder));
        for (flag, path) in paths.into_iter().chain(folders) {
            // Mounts are named by these paths and pod-managers get them, so they must mean the same in every process.
            if !path.is_absolute() {
                wrong(flag, &path.to_string_lossy(), "an absolute path");
            }
        }
        let task = match (arguments.cleanup, arguments.own_driver) {
            (true, _) => Task::Cleanup { stay: arguments.stay },
            (false, true) => Task::OwnDriver,
            (false, false) => Task::Serve,
        };
        // The plugin `own_driver` sets the variable. An agent that ends is created again by kubelet, then with the driver.
        if (task, arguments.injection) == (Task::Serve, Injection::Nri) && variable(VISIBLE_DEVICES).is_none()
        {
            mistakes.push(format!(
                "{VISIBLE_DEVICES} is not set, expected \"void\" with --injection=nri: this container has no driver, because \
                 the container runtime created it while the container own-driver was not registered"
            ));
        }
        match (slots, addresses.zip(state_page), mistakes.is_empty()) {
            (Some(slots_per_gpu), Some(((http, health), state_page)), true) => Ok(Self {
                node,
                slots_per_gpu,
                on_manager_loss: arguments.on_manager_loss.clone(),
                injection: arguments.injection,
                dra: arguments.dra,
                sandboxes: arguments.sandbox_runtime_classes.as_str().into(),
                own_path: OwnPath::of(
                    arguments.injection,
                    variable(VISIBLE_DEVICES).is_some(),
                    variable(OWN_DRIVER).is_some(),
                ),
                http,
                health,
                state_page,
                host: arguments.host.clone(),
                task,
            }),
            _ => Err(ConfigMistakes(mistakes)),
        }
    }
}

impl Config {
    /// Whether Kubernetes evicts the pods of a lost GPU, by the taint of its device, and not the agent.
    pub(crate) fn evicts_by_device_taint(&self, path: GpuPath) -> bool {
        path == GpuPath::Claims && self.host.lost_gpus.policy == LostGpuPolicy::Evict
    }
}

/// Whether two listeners cannot both have their addresses. Port 0 stands for any free port.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let same_host =
        one.ip() == other.ip() || [one, other].iter().any(|address| address.ip().is_unspecified());
    one.port() == other.port() && one.port() != 0 && same_host
}

#[cfg(test)]
mod tests;
