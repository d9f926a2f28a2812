//! The agent's command-line flags about lost GPUs.

use std::time::Duration;

use clap::ValueEnum;

/// As long as Kubernetes leaves pods on a node that does not answer. A reset or a restart of the driver takes less.
const GRACE_SECONDS: u64 = 300;

/// Flags about lost GPUs; part of the agent's flags.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[group(id = "lost_gpu_flags")]
pub struct Flags {
    /// What follows if a GPU is lost for longer than the grace period
    #[arg(long = "lost-gpu-policy", value_enum, default_value_t)]
    pub policy: LostGpuPolicy,
    /// How long a GPU may be lost before the policy is carried out, in seconds
    #[arg(long = "lost-gpu-grace-seconds", value_name = "SECONDS", default_value_t = GRACE_SECONDS,
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace_seconds: u64,
}

/// What follows if a GPU is lost for longer than the grace period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LostGpuPolicy {
    /// Events and metrics only
    Report,
    /// The node has the taint sluice.dev/gpu-lost until no GPU is lost: PreferNoSchedule while other GPUs are healthy, else NoSchedule
    #[default]
    Taint,
    /// The pods that have the GPU are evicted. The agent needs the right to create `pods/eviction`
    Evict,
}

impl Default for Flags {
    fn default() -> Self {
        Self { policy: LostGpuPolicy::default(), grace_seconds: GRACE_SECONDS }
    }
}

impl Flags {
    /// How long a GPU may be lost before the policy is carried out.
    #[must_use]
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}
