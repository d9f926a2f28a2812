//! What a pod-manager is told at its start.

mod check;
mod choices;
mod policies;

pub use check::ConfigMistakes;
pub use choices::{Adoption, AgentConfig, ClientSource, Controls, GatesOf, OnManagerLoss};
pub(crate) use policies::nanos;

use sluice_core::gates::GatePolicy;
use sluice_core::share::Share;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The whole configuration of one pod-manager. [`Config::new`] and [`Config::for_agent`] fill in the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the unix socket, at most 107 bytes. Its directory is created; a stale socket is replaced.
    pub socket: PathBuf,
    /// Permission bits of the socket. Default 0666: who may have a share is decided by identity, not by file mode.
    pub socket_mode: u32,
    /// Address for Gemini's protocol over TCP, loopback only, and only with a resource file: nothing is known of such
    /// peers but the name they claim. Default: none. Port 0 picks one.
    pub tcp: Option<SocketAddr>,
    /// Who the clients are.
    pub clients: ClientSource,
    /// Address for GET /metrics and /healthz. Default: none. Port 0 picks one.
    pub metrics: Option<SocketAddr>,
    /// What clients do while no manager answers. Default: they go on.
    pub on_manager_loss: OnManagerLoss,
    /// Span over which requests are kept: 100 ms to 1 hour. Default 10 s.
    pub window: Duration,
    /// First and unhinted length of a grant: between the minimum and the cap. Default 50 ms.
    pub base_quota: Duration,
    /// Shortest grant, from 1 ms. Default 10 ms.
    pub min_quota: Duration,
    /// Longest grant, at most the window. Default 100 ms.
    pub max_quota: Duration,
    /// A client with limit L gets grants of at most L × this, so that its pauses stay below this; at most the window.
    /// Default 200 ms.
    pub limit_period: Duration,
    /// Whether channel groups are controlled from here. Default: where a self-test has proven what the driver does, or it is known.
    pub controls: Controls,
    /// Whether programs are steered that run without our hook. Default: no, as that was tried on simulated GPUs only.
    pub adopt: Adoption,
    /// The `sluice` program, which makes the driver's locks for processes whose groups cannot be had (`sluice hold --locks`). Default:
    /// none, and they are not steered.
    pub lock_program: Option<PathBuf>,
    /// Verdict of `sluice self-test`: believed rather than the driver's version while it holds. Default: none.
    pub self_test: Option<PathBuf>,
    /// Whether standard input is a packet socket to whoever supervises this manager, who gets duplicates of the ways to the
    /// driver and starts those again that are stopped when the manager dies. Default: no.
    pub custody: bool,
    /// How long a turn of a client lasts whose channel groups are controlled, 30 ms to 100 ms: a hand-over takes about a
    /// millisecond of every GPU's driver on the node, so shorter ones cost the neighbours, and longer ones make who waits
    /// wait longer. Shares come from how often somebody's turn comes, not from its length. Default 50 ms.
    pub turn: Duration,
    /// GPUs of the node whose managers control channel groups, 1 to 64. Controls lock the driver for all of them, so with many
    /// of them turns are longer than [`Self::turn`]: see [`Self::turn_on_node`]. Default 1.
    pub node_gpus: u32,
    /// Whose gates are closed, and whose grants are withheld, while somebody latency-critical is busy. Default: nobody's, as
    /// what gates cost frameworks on a GPU is not measured yet (docs/benchmarks.md).
    pub gates: GatesOf,
    /// How long all who are latency-critical have to be idle until the gates are opened: at most 1 s. Default 500 µs.
    pub gate_idle: Duration,
    /// The part of the time for which the gates are open whatever the others do: at most 1/2. Default 0.05.
    pub gate_share: Share,
    /// Best-effort clients that may hold grants at once, 1 to 64. Default 1.
    pub capacity: usize,
    /// How long a grant that is not returned is waited for after its deadline, at most 1 minute. Default 2 s.
    pub return_timeout: Duration,
    /// How long the next turn is held back for the client that has just returned a grant at its deadline, if it would
    /// be chosen again: at most 10 ms. Default 200 µs.
    pub linger: Duration,
    /// The longest pause of a client that still counts as activity, at most the window. Default 100 ms.
    pub idle_credit: Duration,
    /// Time before and after a deadline during which the data plane polls instead of sleeping, while somebody waits:
    /// at most 10 ms. Zero: never. Default 50 µs.
    pub busy_poll: Duration,
    /// Connections served at once, 1 to 65536. A further one takes the place of the oldest that has not said anything
    /// yet, and is closed if there is none. With the node agent's clients one pod has at most a quarter of them, but two.
    /// Default 4096.
    pub max_connections: usize,
    /// Connections of one process to the unix socket at once, 2 to 65536; further ones are closed. Processes whose
    /// number the kernel does not tell (of a pid namespace not seen here) are not counted. Default 64.
    pub max_connections_per_process: usize,
}

impl Config {
    /// The defaults for a socket and a resource file.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, resource_file: impl Into<PathBuf>) -> Self {
        Self::with(socket.into(), ClientSource::File { path: resource_file.into(), swapped: false })
    }

    /// The defaults for a socket and a control socket, on a Kubernetes node.
    #[must_use]
    pub fn for_agent(
        socket: impl Into<PathBuf>,
        control: impl Into<PathBuf>,
        gpu_uuid: impl Into<String>,
    ) -> Self {
        let agent = AgentConfig {
            control: control.into(),
            gpu_uuid: gpu_uuid.into(),
            hold: Duration::from_secs(3),
            max_held: 1024,
        };
        Self::with(socket.into(), ClientSource::Agent(agent))
    }

    fn with(socket: PathBuf, clients: ClientSource) -> Self {
        Self {
            socket,
            socket_mode: 0o666,
            tcp: None,
            clients,
            metrics: None,
            on_manager_loss: OnManagerLoss::Open,
            window: Duration::from_secs(10),
            base_quota: Duration::from_millis(50),
            min_quota: Duration::from_millis(10),
            max_quota: Duration::from_millis(100),
            limit_period: Duration::from_millis(200),
            controls: Controls::default(),
            adopt: Adoption::default(),
            lock_program: None,
            self_test: None,
            custody: false,
            turn: Duration::from_millis(50),
            node_gpus: 1,
            gates: GatesOf::default(),
            gate_idle: Duration::from_nanos(GatePolicy::default().idle_ns),
            gate_share: GatePolicy::default().least_open,
            capacity: 1,
            return_timeout: Duration::from_secs(2),
            linger: Duration::from_micros(200),
            idle_credit: Duration::from_millis(100),
            busy_poll: Duration::from_micros(50),
            max_connections: 4096,
            max_connections_per_process: 64,
        }
    }
}
