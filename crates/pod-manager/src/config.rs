//! What a pod-manager is told at its start. Every mistake is reported at once.

use sluice_comm::HOOK_PATIENCE;
use sluice_core::gates::GatePolicy;
use sluice_core::ledger::{Policy, UsageSource};
use sluice_core::quota::QuotaPolicy;
use sluice_core::share::Share;
use sluice_core::steering::SteeringPolicy;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What each GPU of the node adds to the shortest turn.
const TURN_PER_GPU: Duration = Duration::from_micros(12_500);

/// What clients do while no manager answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnManagerLoss {
    /// They go on without tokens (fail-open).
    #[default]
    Open,
    /// They hold their launches until a manager answers again (fail-closed).
    Closed,
}

/// Whether channel groups are stopped, started and given time slices from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controls {
    /// Those of processes that send a descriptor of the NVIDIA control device, if a self-test has proven what the driver does,
    /// or without one if its layouts are known.
    #[default]
    Auto,
    /// As `Auto`, whatever the driver's version is.
    AnyDriver,
    /// Those of a simulator, too.
    Simulated,
    /// None: everybody takes turns by token.
    Off,
}

/// Whether programs of our clients' pods that run without our hook are steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adoption {
    /// Where channel groups are controlled and the node agent says which pods are clients: their processes are found by their cgroups,
    /// and their groups through copies of their descriptors. With a resource file nobody is looked for: nothing but what a
    /// program says itself would tell whose it is.
    #[default]
    Auto,
    /// Nobody is looked for.
    Off,
}

/// Which best-effort processes hold what they have submitted while somebody latency-critical is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatesOf {
    /// Those whose channel groups are not controlled.
    Unsteered,
    /// Those whose channel groups are controlled, too.
    All,
    /// None.
    #[default]
    Off,
}

/// Where the clients come from, and by what a process is recognised as one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSource {
    /// A resource file, watched for changes. Processes are who they say they are.
    File {
        /// Where it is.
        path: PathBuf,
        /// Gemini's notation has LIMIT before REQUEST, as KubeShare 2.0 writes it. Default: no.
        swapped: bool,
    },
    /// The node agent, over the control API. Processes are recognised by their cgroup.
    Agent(AgentConfig),
}

/// How the node agent is served, and what happens to processes that it has not spoken of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Path of the control socket, at most 80 bytes, mode 0600. It appears once clients are served.
    pub control: PathBuf,
    /// The GPU's uuid as the driver spells it: what a snapshot says.
    pub gpu_uuid: String,
    /// How long a process of an unknown pod is held before it is refused: less than [`HOOK_PATIENCE`], for a hook that
    /// gave up would not hear why and go on without limits. Default 3 s.
    pub hold: Duration,
    /// Connections held at once, 0 to 65536; further ones are refused. One pod gets at most 64 of them. Default 1024.
    pub max_held: usize,
}

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
    /// Whether programs are steered that run without our hook. Default: where that can be done.
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
    /// programs whose streams are preempted again and again have crashed in the real driver (docs/ARCHITECTURE.md).
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

    /// Checks every field.
    ///
    /// # Errors
    /// All mistakes, each with the field, what it is and what it may be.
    pub fn check(&self) -> Result<(), ConfigMistakes> {
        let mut mistakes = Vec::new();
        let mut expect = |holds: bool, field: &'static str, found: String, expected: &'static str| {
            if !holds {
                mistakes.push(format!("{field} is {found}, expected {expected}"));
            }
        };
        let path = self.socket.as_os_str().len();
        expect((1..=80).contains(&path), "socket", format!("a path of {path} bytes"), "1 to 80 bytes");
        expect(self.socket_mode <= 0o777, "socket_mode", format!("{:o}", self.socket_mode), "at most 777");
        if let Some(tcp) = self.tcp {
            expect(
                tcp.ip().is_loopback(),
                "tcp",
                tcp.to_string(),
                "a loopback address: its peers prove nothing",
            );
        }
        match &self.clients {
            ClientSource::File { path, .. } => {
                expect(!path.as_os_str().is_empty(), "resource_file", "empty".into(), "a path");
            }
            ClientSource::Agent(agent) => {
                let path = agent.control.as_os_str().len();
                expect(
                    (1..=80).contains(&path),
                    "control",
                    format!("a path of {path} bytes"),
                    "1 to 80 bytes",
                );
                expect(agent.control != self.socket, "control", "the socket".into(), "a socket of its own");
                let uuid = agent.gpu_uuid.as_str();
                let graphic = !uuid.is_empty() && uuid.bytes().all(|byte| byte.is_ascii_graphic());
                expect(graphic, "gpu_uuid", format!("{uuid:?}"), "the GPU's uuid");
                let less = "less than 5 s, after which a hook gives up";
                expect(agent.hold < HOOK_PATIENCE, "hold", format!("{:?}", agent.hold), less);
                expect(agent.max_held <= 65_536, "max_held", agent.max_held.to_string(), "0 to 65536");
                expect(self.tcp.is_none(), "tcp", "given".into(), "none beside --control");
            }
        }
        let window = self.window;
        let mut span = |field, value: Duration, least: Duration, most: Duration, expected| {
            expect(value >= least && value <= most, field, format!("{value:?}"), expected);
        };
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        span("window", window, ms(100), ms(3_600_000), "100 ms to 1 h");
        span("min_quota", self.min_quota, ms(1), self.max_quota, "1 ms to max_quota");
        span("base_quota", self.base_quota, self.min_quota, self.max_quota, "min_quota to max_quota");
        span("max_quota", self.max_quota, ms(1), window, "1 ms to window");
        span("limit_period", self.limit_period, ms(1), window, "1 ms to window");
        span("turn", self.turn, ms(30), ms(100), "30 to 100 ms");
        let (gpus, gate_share) = (self.node_gpus, self.gate_share.as_fraction());
        let within = (1..=64).contains(&gpus);
        span("gate_idle", self.gate_idle, us(0), ms(1000), "at most 1 s");
        span("return_timeout", self.return_timeout, us(0), ms(60_000), "at most 1 min");
        span("linger", self.linger, us(0), ms(10), "at most 10 ms");
        span("idle_credit", self.idle_credit, us(0), window, "at most window");
        span("busy_poll", self.busy_poll, us(0), ms(10), "at most 10 ms");
        expect(gate_share <= 0.5, "gate_share", gate_share.to_string(), "0 to 0.5");
        expect(within, "node_gpus", gpus.to_string(), "1 to 64");
        expect((1..=64).contains(&self.capacity), "capacity", self.capacity.to_string(), "1 to 64");
        let connections = self.max_connections;
        expect((1..=65_536).contains(&connections), "max_connections", connections.to_string(), "1 to 65536");
        let of_one = self.max_connections_per_process;
        expect(
            (2..=65_536).contains(&of_one),
            "max_connections_per_process",
            of_one.to_string(),
            "2 to 65536",
        );
        if mistakes.is_empty() { Ok(()) } else { Err(ConfigMistakes(mistakes)) }
    }

    /// The token policy that this configuration asks for.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            window_ns: nanos(self.window),
            quota: QuotaPolicy {
                base_ns: nanos(self.base_quota),
                min_ns: nanos(self.min_quota),
                cap_ns: nanos(self.max_quota),
                limit_period_ns: nanos(self.limit_period),
            },
            capacity: self.capacity,
            return_timeout_ns: nanos(self.return_timeout),
            linger_ns: nanos(self.linger),
            idle_credit_ns: nanos(self.idle_credit),
            usage: UsageSource::Events,
            turn_ns: nanos(self.turn_on_node()),
            min_turn_ns: Policy::default().min_turn_ns.max(nanos(self.node_turn())),
            ..Policy::default()
        }
    }

    /// What the gates are set to.
    #[must_use]
    pub fn gate_policy(&self) -> GatePolicy {
        GatePolicy { idle_ns: nanos(self.gate_idle), least_open: self.gate_share, ..GatePolicy::default() }
    }

    /// What steering is set to: a hand-over is two controls.
    #[must_use]
    pub fn steering_policy(&self) -> SteeringPolicy {
        SteeringPolicy { control_ns: nanos(self.node_turn()) / 2, ..SteeringPolicy::default() }
    }

    /// How long turns last: as long as is wished for, and not so short that all managers of the node together make more than
    /// 80 hand-overs a second, some 8 % of the driver's time. With 8 GPUs that is 100 ms.
    #[must_use]
    pub fn turn_on_node(&self) -> Duration {
        self.turn.max(self.node_turn())
    }

    fn node_turn(&self) -> Duration {
        TURN_PER_GPU * self.node_gpus
    }
}

/// A duration in nanoseconds, saturating after some 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Every mistake of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistakes(Vec<String>);

impl ConfigMistakes {
    /// The mistakes, in the order of the fields.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl std::error::Error for ConfigMistakes {}

impl fmt::Display for ConfigMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_without_mistakes() {
        assert_eq!(Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources").check(), Ok(()));
    }

    #[test]
    fn turns_are_as_long_as_the_nodes_driver_can_bear() {
        let turns = |node_gpus| {
            let config = Config { node_gpus, ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") };
            (config.policy().turn_ns / 1_000_000, config.policy().min_turn_ns / 1_000_000)
        };
        assert_eq!([1, 4, 8, 16].map(turns), [(50, 30), (50, 50), (100, 100), (200, 200)]);
        let of_eight =
            Config { node_gpus: 8, ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") };
        assert_eq!(of_eight.steering_policy().control_ns, 50_000_000);
    }

    #[test]
    fn nobody_is_held_for_as_long_as_its_hook_waits() {
        let holding = |hold| {
            let mut config = Config::for_agent("/run/sluice/gpu.sock", "/var/lib/sluice/gpu.sock", "GPU-1");
            if let ClientSource::Agent(agent) = &mut config.clients {
                agent.hold = hold;
            }
            config.check().map_err(|mistakes| mistakes.to_string())
        };
        assert_eq!(holding(Duration::from_millis(4999)), Ok(()));
        let words = "hold is 5s, expected less than 5 s, after which a hook gives up";
        assert_eq!(holding(HOOK_PATIENCE), Err(words.to_owned()));
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let config = Config {
            tcp: Some(([192, 168, 0, 1], 50051).into()),
            min_quota: Duration::from_millis(200),
            capacity: 0,
            socket_mode: 0o1000,
            linger: Duration::from_secs(1),
            ..Config::new("", "")
        };
        let mistakes = config.check().unwrap_err();
        let fields: Vec<&str> = mistakes.iter().filter_map(|text| text.split(' ').next()).collect();
        let expected = [
            "socket",
            "socket_mode",
            "tcp",
            "resource_file",
            "min_quota",
            "base_quota",
            "linger",
            "capacity",
        ];
        assert_eq!(fields, expected);
    }
}
