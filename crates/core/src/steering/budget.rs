//! How many controls are made for hand-overs: each one locks the driver of every GPU on the node.

use super::policy::SteeringPolicy;

/// What may still be spent on stopping and starting best-effort groups. Begins with all of it.
///
/// Whatever can wait without harm waits until there is something left: an idle turn is not given up before its end, who wants
/// nothing is not started. What cannot wait is made all the same and earned afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// When all of it is there again.
    whole_at: u64,
}

impl Budget {
    /// A control is made. What it takes to hand over many groups at once is not earned to the end: others would have no hand-over
    /// but late ones long after their owner has gone.
    pub(super) fn spend(&mut self, policy: &SteeringPolicy, now: u64) {
        let all = policy.controls_at_once.saturating_mul(policy.control_ns);
        let most = now.saturating_add(all).saturating_add(policy.late_ns);
        self.whole_at = self.whole_at.max(now).saturating_add(policy.control_ns).min(most);
    }

    /// From when on there is enough for one control.
    pub(super) fn ready_at(&self, policy: &SteeringPolicy) -> u64 {
        let rest = policy.controls_at_once.saturating_sub(1).saturating_mul(policy.control_ns);
        self.whole_at.saturating_sub(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_so_many_a_second_after_that() {
        let policy = SteeringPolicy { control_ns: 10, controls_at_once: 3, ..SteeringPolicy::default() };
        let mut budget = Budget::default();
        for _ in 0..3 {
            assert!(budget.ready_at(&policy) <= 1000);
            budget.spend(&policy, 1000);
        }
        assert_eq!(budget.ready_at(&policy), 1010);
        budget.spend(&policy, 1000);
        assert_eq!(budget.ready_at(&policy), 1020, "what could not wait is earned afterwards");
        budget.spend(&policy, 5000);
        assert!(budget.ready_at(&policy) <= 5000, "what is not spent is kept");
    }

    #[test]
    fn who_hands_over_many_groups_does_not_leave_others_without_for_long() {
        let policy = SteeringPolicy::default();
        let mut budget = Budget::default();
        for _ in 0..10_000 {
            budget.spend(&policy, 1000);
        }
        assert_eq!(budget.ready_at(&policy), 1000 + policy.control_ns + policy.late_ns);
    }
}
