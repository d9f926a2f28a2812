//! What a configuration chooses between.

use std::path::PathBuf;
use std::time::Duration;

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
    Auto,
    /// Nobody is looked for.
    #[default]
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
    /// How long a process of an unknown pod is held before it is refused: less than [`HOOK_PATIENCE`](sluice_comm::HOOK_PATIENCE), for a hook that
    /// gave up would not hear why and go on without limits. Default 3 s.
    pub hold: Duration,
    /// Connections held at once, 0 to 65536; further ones are refused. One pod gets at most 64 of them. Default 1024.
    pub max_held: usize,
}
