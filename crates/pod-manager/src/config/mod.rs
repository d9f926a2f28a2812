//! The configuration of a pod-manager.

mod check;
mod policies;

pub use check::{ConfigMistake, ConfigMistakes};
pub(crate) use policies::{Policies, nanos};

use sluice_comm::SILENCE_NS;
use sluice_core::channel_groups::ChannelGroupPolicy;
use sluice_core::processes::ViolationPolicy;
use sluice_hook_core::deadline_polling::around_ns;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

/// The whole configuration of one pod-manager. [`Config::new`] and [`Config::for_agent`] fill in the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the unix socket, at most 107 bytes. Its directory is created; a stale socket is replaced.
    pub socket: PathBuf,
    /// Permission bits of the socket. Default 0666: identity decides which process has a share, not the file mode.
    pub socket_mode: u32,
    /// Address for Gemini's protocol over TCP, loopback only, and only with a resource file: of such peers only the claimed name is known.
    /// Default: none. Port 0 picks one.
    pub tcp: Option<SocketAddr>,
    /// Where the clients are defined.
    pub clients: ClientSource,
    /// With a resource file: the GPU whose memory is read, as the driver spells it. Default: the only GPU of the machine.
    pub gpu_uuid: Option<String>,
    /// Address for GET /metrics and /healthz. Default: none. Port 0 picks one.
    pub metrics: Option<SocketAddr>,
    /// Address for GET /healthz alone, with limits of its own. Default: none. Port 0 picks one.
    pub health: Option<SocketAddr>,
    /// Path of the trace socket, at most 80 bytes, mode 0600: the manager's own user reads traces there. In another directory than the
    /// socket, which tenants see. Default: none.
    pub trace: Option<PathBuf>,
    /// A file with settings that take precedence over those here, watched for changes (docs/operators/policy.md). Default: none.
    pub policy_file: Option<PathBuf>,
    /// What processes do while no manager answers. Default: they run on.
    pub on_manager_loss: OnManagerLoss,
    /// Span over which requests are kept: 100 ms to 1 hour. Default 10 s.
    pub window: Duration,
    /// Length of the first grant, and of grants without a hint: between the minimum and the cap. Default 50 ms.
    pub base_quota: Duration,
    /// Shortest grant, from 1 ms. Default 10 ms.
    pub min_quota: Duration,
    /// Longest grant, at most the window. Default 100 ms.
    pub max_quota: Duration,
    /// A client with limit L gets grants of at most L × this time, so that its pauses stay below this time; at most the window.
    /// Default 200 ms.
    pub limit_period: Duration,
    /// Whether the manager controls channel groups. Default: where a self-test has proven the controls, or the driver is known.
    pub controls: Controls,
    /// Whether attached processes are inspected, where channel groups are controlled. Where the node agent names the pods, processes of the
    /// clients' pods without the hook are scheduled, too. They are found by their cgroups, and their groups through copies of
    /// their descriptors. With a resource file only attached processes are inspected, because nothing but its own claim would tell the
    /// client of another process. Default: no, because reading other processes' descriptors needs privileges.
    pub unhooked: bool,
    /// What follows from violations of clients' limits. Default: processes of clients with a limit are stopped.
    pub violation_policy: ViolationPolicy,
    /// The `sluice` program, which takes the driver's locks for processes whose groups cannot be controlled (`sluice lock-helper`).
    /// Default: none; then such processes are not scheduled.
    pub lock_program: Option<PathBuf>,
    /// Result of `sluice self-test`: while it is valid it decides, and not the driver's version. Default: none.
    pub self_test: Option<PathBuf>,
    /// Whether standard input is a packet socket for the descriptor escrow. The node agent at its other end keeps copies of the control
    /// descriptors, and enables disabled groups when the manager dies. Default: no.
    pub escrow: bool,
    /// The quantum of a hardware-scheduled client, 30 ms to 100 ms. A hand-off takes about a millisecond of the driver of every GPU on
    /// the node: shorter quanta cost the other GPUs, longer ones delay waiting clients. Shares result from the number of quanta, not
    /// from their length. Default 50 ms.
    pub quantum: Duration,
    /// Time slice of a best-effort channel group while a latency-critical process works: 1 µs to 2048 µs. Default 1 µs.
    pub best_effort_slice: Duration,
    /// Time slice of the latency-critical channel groups while at most one of them has work: 1 ms to 1 s. Default 1 s.
    pub critical_slice: Duration,
    /// The same while several have work. Default 5 ms.
    pub shared_critical_slice: Duration,
    /// GPUs of the node whose managers control channel groups, 1 to 64. Controls lock the driver for all of them, so with many GPUs
    /// quanta are longer than [`Self::quantum`]: see [`Self::quantum_on_node`]. Default 1.
    pub node_gpus: u32,
    /// Directory of the tables by which the managers of a node's GPUs agree on the slots of clients with processes on several GPUs: the
    /// same for all of them, and none that tenants can read. Default: none; each GPU is scheduled by itself.
    pub gangs: Option<PathBuf>,
    /// Best-effort clients that may hold grants at once, 1 to 64. Default 1.
    pub capacity: usize,
    /// How long the manager waits after its deadline for a grant to be returned, at most 1 minute. Default 2 s.
    pub return_timeout: Duration,
    /// How long the next grant is delayed for the client that has just returned one at its deadline, if it would be chosen again: at
    /// most 10 ms. Default 200 µs.
    pub linger: Duration,
    /// The longest pause of a client that still counts as activity, at most the window. Default 100 ms.
    pub idle_credit: Duration,
    /// Time before the deadline of a grant from which on the event loop polls instead of sleeping, if a client waits. It polls until 1.6
    /// times as long after the deadline. The clients of the hand-off poll too. At most 200 µs, and 0.5 % of a core. Zero: never.
    /// Default 125 µs, and zero where this process has fewer than four CPUs.
    pub busy_poll: Duration,
    /// A pause of the event loop from which on the manager assumes that hooks have treated it as lost, and sets all channel groups anew:
    /// 100 ms to 1 h. Default: the time after which they do so, [`SILENCE_NS`](sluice_comm::SILENCE_NS).
    pub missed_heartbeat: Duration,
    /// Memory that clients with overcommitment share. Default: none; their memory stays on the GPU.
    pub overcommit: Option<Overcommit>,
    /// Connections open at once, 1 to 65536. A further one replaces the oldest that has not sent a request yet, and is closed if there is
    /// none. One client, or one pod, has at most a quarter of them, or 256 if an eighth of all is left to others. Fewer if the limit of
    /// descriptors is below 3 for each of them and 128 for the rest. Default 4096.
    pub max_connections: usize,
    /// Connections of one process to the unix socket at once, 2 to 65536; further ones are closed. Processes whose
    /// pid the kernel does not report (of a pid namespace that is not visible here) are not counted. Default 64.
    pub max_connections_per_process: usize,
}

impl Config {
    /// The defaults for a socket and a resource file.
    pub fn new(socket: impl Into<PathBuf>, resource_file: impl Into<PathBuf>) -> Self {
        Self::with(socket.into(), ClientSource::File { path: resource_file.into(), swapped: false })
    }

    /// The defaults for a socket and a control socket, on a Kubernetes node.
    pub fn for_agent(
        socket: impl Into<PathBuf>,
        control: impl Into<PathBuf>,
        gpu_uuid: impl Into<String>,
    ) -> Self {
        let agent = AgentConfig {
            control: control.into(),
            gpu_uuid: gpu_uuid.into(),
            pending_time: Duration::from_secs(3),
            max_pending: 1024,
        };
        Self::with(socket.into(), ClientSource::Agent(agent))
    }

    /// What distinguishes this GPU from the others of the node, as the name of a file: its uuid, or the path of its socket.
    pub(crate) fn gpu_name(&self) -> String {
        let uuid = match &self.clients {
            ClientSource::Agent(agent) => Some(&agent.gpu_uuid),
            ClientSource::File { .. } => self.gpu_uuid.as_ref(),
        };
        uuid.cloned().unwrap_or_else(|| self.socket.to_string_lossy().replace('/', "_"))
    }

    fn with(socket: PathBuf, clients: ClientSource) -> Self {
        Self {
            socket,
            socket_mode: 0o666,
            tcp: None,
            clients,
            gpu_uuid: None,
            metrics: None,
            health: None,
            trace: None,
            policy_file: None,
            on_manager_loss: OnManagerLoss::Open,
            window: Duration::from_secs(10),
            base_quota: Duration::from_millis(50),
            min_quota: Duration::from_millis(10),
            max_quota: Duration::from_millis(100),
            limit_period: Duration::from_millis(200),
            controls: Controls::default(),
            unhooked: false,
            violation_policy: ViolationPolicy::default(),
            lock_program: None,
            self_test: None,
            escrow: false,
            quantum: Duration::from_millis(50),
            best_effort_slice: Duration::from_micros(ChannelGroupPolicy::default().best_effort_slice_us),
            critical_slice: Duration::from_micros(ChannelGroupPolicy::default().long_us),
            shared_critical_slice: Duration::from_micros(ChannelGroupPolicy::default().shared_us),
            node_gpus: 1,
            gangs: None,
            capacity: 1,
            return_timeout: Duration::from_secs(2),
            linger: Duration::from_micros(200),
            idle_credit: Duration::from_millis(100),
            busy_poll: Duration::from_nanos(around_ns(available_parallelism().map_or(1, usize::from))),
            missed_heartbeat: Duration::from_nanos(SILENCE_NS),
            overcommit: None,
            max_connections: 4096,
            max_connections_per_process: 64,
        }
    }
}

/// Memory that clients with overcommitment share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overcommit {
    /// Bytes of the GPU for the memory of all clients, contexts included. What a client without overcommitment may have is taken off while
    /// it is connected.
    pub gpu_memory: u64,
    /// Bytes of the host for memory that has left the GPU. Each process takes as much as its client may have on the GPU.
    pub host_memory: u64,
    /// The NUMA node of the GPU: memory of the host comes from there, as far as it has some. Default: from any node.
    pub numa_node: Option<u32>,
    /// How long a client keeps its memory on the GPU at least while another one waits for memory, 100 ms to 1 h. It is longer if moving takes long: moves
    /// take at most a tenth of the time.
    pub quantum: Duration,
}

/// What processes do while no manager answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnManagerLoss {
    /// They run on without grants (fail-open)
    #[default]
    Open,
    /// They hold their launches until a manager answers again (fail-closed)
    Closed,
}

/// Whether the manager enables and disables channel groups and sets their time slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Controls {
    /// Those of processes that send a descriptor of the NVIDIA control device, if a self-test has proven the controls, or without one if
    /// the layouts of the driver are known
    #[default]
    Auto,
    /// As `auto`, for any version of the driver
    AnyDriver,
    /// Those of a simulator, too
    Simulated,
    /// None: all processes are scheduled by token
    Off,
}

/// Where the clients are defined, and by what their processes are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSource {
    /// A resource file, watched for changes. A process belongs to the client whose name it claims.
    File {
        /// Where it is.
        path: PathBuf,
        /// Gemini's notation has LIMIT before REQUEST, as KubeShare 2.0 writes it. Default: no.
        swapped: bool,
    },
    /// The node agent, over the control API. Processes are recognised by their cgroup.
    Agent(AgentConfig),
}

/// How the node agent is served, and what happens to processes of pods that it has not named yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Path of the control socket, at most 80 bytes, mode 0600. It appears once clients are served.
    pub control: PathBuf,
    /// The GPU's uuid as the driver spells it, for snapshots.
    pub gpu_uuid: String,
    /// How long the attach of an unknown pod's process waits before it is refused: less than
    /// [`HOOK_TIMEOUT`](sluice_comm::HOOK_TIMEOUT), because a hook that has given up does not read the reason and runs without limits.
    /// Default 3 s.
    pub pending_time: Duration,
    /// Attaches that wait at once, 0 to 65536; further ones are refused. At most 64 of them are of one pod. Default 1024.
    pub max_pending: usize,
}
