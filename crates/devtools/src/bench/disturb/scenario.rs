//! What a scenario consists of.

use std::time::Duration;

use sluice_sim::fault::ControlFault;

use super::entitled::Terms;

/// What enforces the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// Driver controls of channel groups.
    Controls,
    /// Grants only.
    Token,
}

impl Scheduling {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Controls => "controls",
            Self::Token => "token",
        }
    }

    /// Flags of the pod-manager.
    pub(super) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Controls => &["--controls=simulated"],
            Self::Token => &["--controls=off"],
        }
    }

    /// The longest turn of a client: the pod-manager's default quantum, or its longest grant, and 2 ms for the hand-off or for the last
    /// kernel.
    pub(super) fn quantum(self) -> Duration {
        Duration::from_millis(if self == Self::Controls { 52 } else { 102 })
    }
}

/// What a client's process does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Load {
    /// Kernels back to back.
    Busy,
    /// A request of one kernel each period; milliseconds.
    Requests { kernel: f64, period: f64 },
    /// Nothing before it is told to.
    Idle,
}

/// A client with one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) terms: Terms,
    pub(super) is_critical: bool,
    pub(super) load: Load,
}

impl Client {
    /// A busy best-effort client without a limit.
    pub(super) fn busy(name: &'static str, request: f64) -> Self {
        Self { name, terms: Terms { request, limit: 1.0 }, is_critical: false, load: Load::Busy }
    }

    /// A latency-critical client without a limit.
    pub(super) fn critical(request: f64, load: Load) -> Self {
        Self { is_critical: true, load, ..Self::busy("lc", request) }
    }

    pub(super) fn limited(self, limit: f64) -> Self {
        Self { terms: Terms { limit, ..self.terms }, ..self }
    }

    /// Its line of the resource file.
    pub(super) fn line(&self) -> String {
        let Self { name, terms: Terms { request, limit }, is_critical, .. } = self;
        let class = if *is_critical { "latency-critical" } else { "best-effort" };
        format!("  - {{ name: {name}, request: {request}, limit: {limit}, memory: 8Gi, class: {class} }}\n")
    }
}

/// What happens to a bed whose clients have settled. It always concerns the first client if it concerns one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Disturbance {
    Nothing,
    /// The manager is stopped (SIGSTOP) for this time and continued.
    ManagerStopped(Duration),
    /// The same; meanwhile a running process allocates, and a new process starts.
    AllocationsWhileManagerStopped(Duration),
    /// One kernel of this length.
    LongKernel(Duration),
    /// The process is stopped for this time and continued.
    ProcessStopped(Duration),
    /// The client is latency-critical for this time.
    CriticalFor(Duration),
    /// The process is killed, and started again after this time.
    Restarted(Duration),
    /// The resource file is written anew with another comment.
    Reloaded,
    /// All processes except the last are stopped for good.
    OthersStopped,
    /// The process is stopped for good in the middle of a request.
    StoppedInRequest,
    /// The driver's controls fail for this time.
    ControlsFail(ControlFault, Duration),
    /// Its requests are measured for this time; then it gets this limit.
    Limited(Duration, f64),
}

/// What the scenario has to show, besides that the exported figures are true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bar {
    /// In every window of a second each client has its entitled share.
    EntitledEverySecond,
    /// Over the whole span each client has its entitled share.
    Entitled,
    /// The last client has this share, or what the first one, up to its request, and context switches leave. The GPU is not idle.
    Share(f64),
    /// The first client has at most this share over 10 s.
    ShareAtMost(f64),
    /// The requests of the first client take as long as without its limit.
    RequestsNotDelayed,
    /// The processes that are not stopped lose at most a quantum a second.
    NothingLostToStopped,
    /// Processes run again, and allocations are answered, within a quarter of a second.
    Live,
    /// All processes are hardware-scheduled again within 10 s.
    LevelRegained,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scenario {
    /// The line of the issue, and which of its cases.
    pub(super) name: String,
    pub(super) scheduling: Scheduling,
    pub(super) clients: Vec<Client>,
    pub(super) disturbance: Disturbance,
    pub(super) bar: Bar,
}

impl Scenario {
    /// The resource file.
    pub(super) fn resource_file(clients: &[Client]) -> String {
        format!("clients:\n{}", clients.iter().map(Client::line).collect::<String>())
    }

    /// The shortest span over which the bar means something. A client with a twentieth of the GPU has one grant in about three seconds: over
    /// 13 s its share is a point more or less with each grant, over a minute a quarter.
    pub(super) fn least_span(&self) -> Duration {
        match self.bar {
            Bar::Entitled => Duration::from_secs(60),
            _ => Duration::ZERO,
        }
    }

    /// Whether the scenario ends with this client's process running.
    pub(super) fn is_active(&self, client: usize) -> bool {
        match self.disturbance {
            Disturbance::OthersStopped => client + 1 == self.clients.len(),
            Disturbance::StoppedInRequest => client != 0,
            _ => self.clients[client].load != Load::Idle,
        }
    }
}
