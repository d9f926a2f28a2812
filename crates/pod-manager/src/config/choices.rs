//! The enumerations of the configuration.

use std::path::PathBuf;
use std::time::Duration;

/// What processes do while no manager answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnManagerLoss {
    /// They run on without grants (fail-open).
    #[default]
    Open,
    /// They hold their launches until a manager answers again (fail-closed).
    Closed,
}

/// Whether the manager enables and disables channel groups and sets their time slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controls {
    /// Those of processes that send a descriptor of the NVIDIA control device, if a self-test has proven the controls, or without one if
    /// the layouts of the driver are known.
    #[default]
    Auto,
    /// As `Auto`, for any version of the driver.
    AnyDriver,
    /// Those of a simulator, too.
    Simulated,
    /// None: all processes are scheduled by token.
    Off,
}

/// Whether processes of the clients' pods are scheduled that run without the hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnhookedScheduling {
    /// Where channel groups are controlled and the node agent names the pods: their processes are found by their cgroups, and their groups
    /// through copies of their descriptors. With a resource file there is no search, because only the claim of a process would tell
    /// its client.
    Auto,
    /// There is no search.
    #[default]
    Off,
}

/// Which best-effort processes have stream gates: they hold back submitted work while a latency-critical process is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatedProcesses {
    /// Token-scheduled ones.
    TokenScheduled,
    /// Hardware-scheduled ones, too.
    All,
    /// None.
    #[default]
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
