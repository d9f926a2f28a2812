//! The agent's command-line flags that every pod-manager receives: how it enforces shares.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

/// Flags that every pod-manager gets; part of the agent's flags.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[group(id = "manager_flags")]
pub struct Flags {
    /// Whether pod-managers enable, disable and time-slice the channel groups of pods' processes, so that the GPU
    /// itself enforces quanta and latency-critical pods pre-empt others
    #[arg(long, value_enum, default_value_t)]
    controls: Controls,
    /// Whether attached processes are inspected, and processes that run without the hook (statically linked, started with another
    /// environment) are found by their cgroups, and their channel groups scheduled like those of other processes: off by default
    #[arg(long, value_enum)]
    adopt: Option<UnhookedDiscovery>,
    /// What follows if a process of a pod enables its disabled channel groups or sets time slices again and again: `auto` by
    /// default
    #[arg(long, value_enum)]
    violation_policy: Option<ViolationPolicy>,
    /// Length of a quantum where the GPU enforces quanta, in milliseconds, 30 to 100: 50 by default
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(30..=100))]
    turn_ms: Option<u64>,
    /// Settings of scheduling in YAML, which take precedence over the flags above; the pod-managers pick changes up
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    /// Whether the driver controls are tested before a GPU's first pod-manager starts. The test needs an idle GPU for
    /// a moment; a GPU in use is not tested
    #[arg(long, value_enum, default_value_t)]
    self_test: SelfTest,
}

/// When a GPU's driver controls are tested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SelfTest {
    /// Once per GPU, driver and boot
    #[default]
    Once,
    /// Never: the driver's version decides
    Off,
}

/// Which channel groups are controlled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Controls {
    /// Those behind descriptors of the NVIDIA control device, if the driver's control layouts are known
    #[default]
    Auto,
    /// The same with any driver
    AnyDriver,
    /// Those of a simulator too: for tests. A tenant's program could run a simulator of its own and so escape control
    #[value(hide = true)]
    Simulated,
    /// None: every process is scheduled by token
    Off,
}

/// Whether unhooked processes are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnhookedDiscovery {
    /// Where channel groups are controlled. Needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and CAP_DAC_OVERRIDE for the
    /// driver's lock; failures are counted by reason
    Auto,
    /// They are not searched
    Off,
}

/// What follows from violations of pods' limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ViolationPolicy {
    /// `stop` for pods with a limit below 1, `report` for others
    Auto,
    /// They are counted, logged, and shown as events
    Report,
    /// The process is stopped for 10 s, then twice as long each time
    Stop,
    /// The pod is evicted. The agent needs the right to create `pods/eviction`
    Evict,
}

/// The word that agent and manager use for a value: both read it with `clap`.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Flags {
    /// Whether descriptors of a simulator are accepted as control descriptors.
    pub(crate) fn simulated(&self) -> bool {
        self.controls == Controls::Simulated
    }

    /// Whether GPUs are self-tested. A test is useful only if channel groups are controlled.
    pub(crate) fn tests(&self) -> bool {
        self.self_test == SelfTest::Once && self.controls != Controls::Off
    }

    /// The arguments of a pod-manager. A flag that is not set keeps the manager's own default.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![format!("--controls={}", word(self.controls))];
        arguments.extend(self.adopt.map(|adopt| format!("--adopt={}", word(adopt))));
        let policy = self.violation_policy;
        arguments.extend(policy.map(|policy| format!("--violation-policy={}", word(policy))));
        arguments.extend(self.turn_ms.map(|ms| format!("--turn-ms={ms}")));
        let mut arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
        if let Some(file) = &self.policy_file {
            arguments.extend(["--policy-file".into(), file.into()]);
        }
        arguments
    }
}

#[cfg(test)]
mod tests;
