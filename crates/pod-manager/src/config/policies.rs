//! What ledger, gates and steering are set to by a configuration.

use super::Config;
use sluice_core::gates::GatePolicy;
use sluice_core::ledger::{Policy, UsageSource};
use sluice_core::quota::QuotaPolicy;
use sluice_core::steering::SteeringPolicy;
use std::time::Duration;

/// What each GPU of the node adds to the shortest turn.
const TURN_PER_GPU: Duration = Duration::from_micros(12_500);

impl Config {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
