//! The policies of ledger and channel-group scheduling that follow from a configuration.

use super::Config;
use sluice_core::channel_groups::ChannelGroupPolicy;
use sluice_core::ledger::Policy;
use sluice_core::quota::QuotaPolicy;
use std::time::Duration;

/// What each GPU of the node adds to the shortest quantum.
const QUANTUM_PER_GPU: Duration = Duration::from_micros(12_500);

/// The settings that can change while the manager runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) ledger: Policy,
    pub(crate) channel_groups: ChannelGroupPolicy,
}

impl Config {
    pub(crate) fn policies(&self) -> Policies {
        Policies { ledger: self.policy(), channel_groups: self.channel_group_policy() }
    }

    /// The policy of the token ledger.
    pub fn policy(&self) -> Policy {
        Policy {
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
            quantum_ns: nanos(self.quantum_on_node()),
            min_quantum_ns: Policy::default().min_quantum_ns.max(nanos(self.node_quantum())),
            ..Policy::default()
        }
    }

    /// The policy of channel-group scheduling: a hand-off is two controls.
    pub fn channel_group_policy(&self) -> ChannelGroupPolicy {
        ChannelGroupPolicy {
            best_effort_slice_us: micros(self.best_effort_slice),
            long_us: micros(self.critical_slice),
            shared_us: micros(self.shared_critical_slice),
            control_ns: nanos(self.node_quantum()) / 2,
            ..ChannelGroupPolicy::default()
        }
    }

    /// The quantum on this node: the configured one, and not so short that all managers of the node together make more than 80 hand-offs a
    /// second, some 8 % of the driver's time. With 8 GPUs that is 100 ms.
    pub fn quantum_on_node(&self) -> Duration {
        self.quantum.max(self.node_quantum())
    }

    fn node_quantum(&self) -> Duration {
        QUANTUM_PER_GPU * self.node_gpus
    }
}

/// A duration in nanoseconds, saturating after some 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
