//! `sluice pod-manager`: flags for the configuration of [`sluice_pod_manager`], which has all defaults and checks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use sluice_core::resources::parse_bytes;
use sluice_pod_manager::{ClientSource, Config, Controls, OnManagerLoss, Overcommit, ViolationPolicy};

/// Flags of `sluice pod-manager`.
#[derive(Debug, Args)]
#[command(
    // The node agent passes its own flags first, then the extra flags of its configuration.
    args_override_self = true,
    group = clap::ArgGroup::new("clients").required(true).args(["resource_file", "control"]),
    after_help = AFTER_HELP
)]
pub(crate) struct Arguments {
    /// Unix socket to serve
    #[arg(long)]
    socket: PathBuf,
    /// Clients with their shares and memory limits, Gemini's notation or YAML; changes are picked up, and SIGHUP has it read again
    #[arg(long, value_name = "FILE")]
    resource_file: Option<PathBuf>,
    /// The resource file has LIMIT before REQUEST, as KubeShare 2.0 writes it
    #[arg(long, requires = "resource_file")]
    swapped: bool,
    /// Instead of a resource file: unix socket on which the node agent sends the clients; it appears once clients are served.
    /// A process then belongs to the pod of its cgroup, whatever client the process names
    #[arg(long, value_name = "PATH", requires = "gpu_uuid")]
    control: Option<PathBuf>,
    /// The GPU, as its driver spells it; with a resource file the GPU whose memory is read [default: the only one]
    #[arg(long, value_name = "UUID")]
    gpu_uuid: Option<String>,
    /// How long a process of an unknown pod waits before it is refused: less than the 5000 that a hook waits for its answer
    /// [default: 3000]
    #[arg(long, value_name = "MS", value_parser = parse_ms, requires = "control")]
    hold_ms: Option<Duration>,
    /// Connections that may wait at once
    #[arg(long, value_name = "CONNECTIONS", requires = "control")]
    max_held: Option<usize>,
    /// Permission bits of the socket, octal
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    socket_mode: Option<u32>,
    /// Serve Gemini's protocol over TCP too, loopback only, such as 127.0.0.1:50051
    #[arg(long, value_name = "ADDRESS", conflicts_with = "control")]
    tcp: Option<SocketAddr>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Serve http://ADDRESS/healthz on a listener of its own, for probes
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// Unix socket on which `sluice trace` reads traces, for processes of the manager's own user. In another directory than the socket
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,
    /// Settings of scheduling in YAML, which take precedence over the flags of the same meaning; changes are picked up, and SIGHUP has it
    /// read again (docs/operators/policy.md)
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    /// What clients do while no manager answers
    #[arg(long, value_enum)]
    on_manager_loss: Option<OnManagerLoss>,
    /// Span over which requests are kept
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    window_ms: Option<Duration>,
    /// First and unhinted length of a grant
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    base_quota_ms: Option<Duration>,
    /// Shortest grant
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    min_quota_ms: Option<Duration>,
    /// Longest grant
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    max_quota_ms: Option<Duration>,
    /// A client with limit L gets grants of at most L times this
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    limit_period_ms: Option<Duration>,
    /// Whether the manager disables, enables and slices the channel groups of processes that announce them [default: auto]
    #[arg(long, value_enum)]
    controls: Option<Controls>,
    /// Whether the manager inspects attached processes, and with --control discovers processes of the clients' pods that run without the
    /// hook and schedules their channel groups. Needs --gpu-uuid, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and CAP_DAC_OVERRIDE for the
    /// driver's lock [default: off]
    #[arg(long, value_enum)]
    adopt: Option<UnhookedChoice>,
    /// What follows if a process enables its disabled channel groups or sets time slices again and again: `stop` and `evict` concern all
    /// clients, `auto` stops processes of clients with a limit below 1. `evict` needs --control [default: auto]
    #[arg(long, value_enum)]
    violation_policy: Option<Violations>,
    /// Result of `sluice self-test` on this GPU: used instead of the driver's version while driver and boot are the same
    #[arg(long, value_name = "FILE")]
    self_test: Option<PathBuf>,
    /// Standard input is a packet socket to the supervisor, which keeps copies of the control descriptors
    #[arg(long, hide = true)]
    custody: bool,
    /// Quantum of a client whose channel groups are controlled: 30 to 100 [default: 50]
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    turn_ms: Option<Duration>,
    /// GPUs of this node whose managers control channel groups. Controls lock the driver for all of them, so a quantum is at least
    /// 12.5 ms times this number [default: 1]
    #[arg(long, value_name = "GPUS")]
    node_gpus: Option<u32>,
    /// Directory in which the managers of this node's GPUs agree on slots for clients with processes on several GPUs: the same for all,
    /// readable for this user only [default: none, each GPU is scheduled by itself]
    #[arg(long, value_name = "DIR")]
    gangs: Option<PathBuf>,
    /// Best-effort clients that may hold grants at once
    #[arg(long, value_name = "CLIENTS")]
    capacity: Option<usize>,
    /// How long the manager waits for a grant to be returned after its deadline
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    return_timeout_ms: Option<Duration>,
    /// How long the next grant waits for a client that would be chosen again
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    linger_ms: Option<Duration>,
    /// The longest pause of a client that still counts as activity
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    idle_credit_ms: Option<Duration>,
    /// Time before the end of a grant, and 1.6 times as long after it, during which the manager, the holder and the next client poll instead of sleeping, at most 0.2 ms and
    /// 0.5 % of a core each; 0: never [default: 0.125, and 0 on fewer than four CPUs]
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    busy_poll_ms: Option<Duration>,
    /// Memory of the GPU for all clients, such as 130Gi, contexts included: clients with `overcommit: true` share what others leave of it. Their memory leaves the GPU in turn
    /// [default: none, all memory stays]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, requires = "host_memory")]
    overcommit_memory: Option<u64>,
    /// Memory of the host for what leaves the GPU: for all memory of the clients with overcommitment. Each process counts with the most that it had, until it ends
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, requires = "overcommit_memory")]
    host_memory: Option<u64>,
    /// NUMA node of the GPU, as in `/sys/bus/pci/devices/ADDRESS/numa_node`: memory of the host comes from there, as far as it has some [default: any node]
    #[arg(long, value_name = "NODE", requires = "host_memory")]
    gpu_numa_node: Option<u32>,
    /// How long a client with overcommitment keeps its memory at least while another one waits [default: 2000]
    #[arg(long, value_name = "MS", value_parser = parse_ms, requires = "overcommit_memory")]
    memory_quantum_ms: Option<Duration>,
    /// Connections served at once
    #[arg(long)]
    max_connections: Option<usize>,
}

const AFTER_HELP: &str = "\
With --control (a child of the node agent):
  sluice --parent PID pod-manager --gpu-uuid GPU-… --socket /run/sluice/GPU-….sock \\
      --control /var/lib/sluice/control/GPU-….sock
The control socket (mode 0600, own user only) speaks gRPC: service sluice.control.v1.PodManager of
proto/sluice/control_v1.proto. It appears when clients are served. A manager that has just started knows no client:
send SetClients at once. It runs as root in the host's pid namespace: it reads /proc/PID/cgroup and /proc/PID/stat of
its peers. SIGTERM and SIGINT end it with status 0 and both sockets gone; with --parent it ends with its parent.
Log: standard error, a line an event, filtered by RUST_LOG (default info).";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UnhookedChoice {
    /// Where possible; otherwise the reason is logged and counted
    Auto,
    /// Never
    Off,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Violations {
    /// `stop` for clients with a limit below 1, `report` for others
    Auto,
    /// They are counted, logged and reported
    Report,
    /// The process is stopped for 10 s, then twice as long each time
    Stop,
    /// As `stop`, and the node agent evicts the pod
    Evict,
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    crate::start_log()?;
    // The manager's errors are complete in one line.
    sluice_pod_manager::run(arguments.config()).map_err(|why| anyhow!("pod-manager: {why}"))
}

impl Arguments {
    /// The defaults for a resource file or for the control socket.
    fn source(&self) -> Config {
        let Some(control) = &self.control else {
            let path = self.resource_file.clone().unwrap_or_default();
            let clients = ClientSource::File { path: path.clone(), swapped: self.swapped };
            return Config { clients, gpu_uuid: self.gpu_uuid.clone(), ..Config::new(&self.socket, path) };
        };
        let gpu = self.gpu_uuid.clone().unwrap_or_default();
        let mut config = Config::for_agent(&self.socket, control, gpu);
        if let ClientSource::Agent(agent) = &mut config.clients {
            agent.pending_time = self.hold_ms.unwrap_or(agent.pending_time);
            agent.max_pending = self.max_held.unwrap_or(agent.max_pending);
        }
        config
    }

    fn config(&self) -> Config {
        let d = self.source();
        Config {
            socket_mode: self.socket_mode.unwrap_or(d.socket_mode),
            tcp: self.tcp,
            metrics: self.metrics,
            health: self.health,
            trace: self.trace.clone(),
            policy_file: self.policy_file.clone(),
            on_manager_loss: self.on_manager_loss.unwrap_or(d.on_manager_loss),
            window: self.window_ms.unwrap_or(d.window),
            base_quota: self.base_quota_ms.unwrap_or(d.base_quota),
            min_quota: self.min_quota_ms.unwrap_or(d.min_quota),
            max_quota: self.max_quota_ms.unwrap_or(d.max_quota),
            limit_period: self.limit_period_ms.unwrap_or(d.limit_period),
            controls: self.controls.unwrap_or(d.controls),
            unhooked: matches!(self.adopt, Some(UnhookedChoice::Auto)),
            violation_policy: match self.violation_policy {
                None => d.violation_policy,
                Some(Violations::Auto) => ViolationPolicy::Auto,
                Some(Violations::Report) => ViolationPolicy::Report,
                Some(Violations::Stop) => ViolationPolicy::Stop,
                Some(Violations::Evict) => ViolationPolicy::Evict,
            },
            lock_program: std::env::current_exe().ok(),
            self_test: self.self_test.clone(),
            escrow: self.custody,
            quantum: self.turn_ms.unwrap_or(d.quantum),
            node_gpus: self.node_gpus.unwrap_or(d.node_gpus),
            gangs: self.gangs.clone(),
            capacity: self.capacity.unwrap_or(d.capacity),
            return_timeout: self.return_timeout_ms.unwrap_or(d.return_timeout),
            linger: self.linger_ms.unwrap_or(d.linger),
            idle_credit: self.idle_credit_ms.unwrap_or(d.idle_credit),
            busy_poll: self.busy_poll_ms.unwrap_or(d.busy_poll),
            overcommit: self.overcommit_memory.zip(self.host_memory).map(|(gpu_memory, host_memory)| {
                Overcommit {
                    gpu_memory,
                    host_memory,
                    numa_node: self.gpu_numa_node,
                    quantum: self.memory_quantum_ms.unwrap_or(Duration::from_secs(2)),
                }
            }),
            max_connections: self.max_connections.unwrap_or(d.max_connections),
            ..d
        }
    }
}

fn parse_ms(text: &str) -> Result<Duration, String> {
    let ms: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of milliseconds"))?;
    Duration::try_from_secs_f64(ms / 1e3).map_err(|why| why.to_string())
}

fn parse_memory(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| format!("`{text}` is not an amount of memory, such as 130Gi"))
}

fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| format!("`{text}` is not an octal mode, such as 660"))
}
