//! Comparison of sets of victims: the smaller cost is better.
//!
//! The order is that of kube-scheduler's `pickOneNodeForPreemption`
//! (`pkg/scheduler/framework/preemption/preemption.go`, read in 1.34.4): fewest violations of disruption budgets, lowest
//! highest priority, lowest sum of priorities, fewest pods, latest start among the pods of the highest priority.

use std::cmp::Reverse;

use super::{Candidate, Evictable};

/// Cost of a set of victims. The fields are compared in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    pub(super) violations: u32,
    /// `None` without a victim that is not ending already.
    highest_priority: Option<i32>,
    /// Each priority counts from the lowest possible one, so that every pod increases the sum.
    sum_of_priorities: u64,
    pods: usize,
    /// Of the pods of the highest priority.
    earliest_start: Reverse<Option<i64>>,
    /// Pods that have to end, with those that are ending already. Waiting for fewer of them is better.
    with_ending: usize,
}

impl Cost {
    /// The cost of these pods, which are in order of importance. A pod that is ending already costs nothing.
    pub(super) fn of(pods: &[&Candidate<'_>], disruptions_allowed: &[i32]) -> Self {
        let evicted = || pods.iter().filter(|one| !one.facts.is_ending);
        let highest_priority = evicted().map(|one| one.priority()).max();
        let highest = evicted().filter(|one| Some(one.priority()) == highest_priority);
        Self {
            violations: violations(evicted().copied(), disruptions_allowed),
            highest_priority,
            sum_of_priorities: evicted().map(|one| u64::from(one.priority().abs_diff(i32::MIN))).sum(),
            pods: evicted().count(),
            earliest_start: Reverse(highest.map(|one| one.facts.started).min()),
            with_ending: pods.len(),
        }
    }
}

/// Number of pods whose eviction one of their budgets does not allow. The pods are in order of importance.
fn violations<'a>(evicted: impl Iterator<Item = &'a Candidate<'a>>, disruptions_allowed: &[i32]) -> u32 {
    let mut used = Disruptions::new(disruptions_allowed);
    evicted.map(|one| u32::from(used.evict(&one.facts))).sum()
}

/// The disruptions that the budgets still allow after some evictions.
pub(super) struct Disruptions(Vec<i32>);

impl Disruptions {
    pub(super) fn new(allowed: &[i32]) -> Self {
        Self(allowed.to_vec())
    }

    /// Uses one disruption of each budget of the pod. Returns whether one of them did not allow it, as
    /// `filterPodsWithPDBViolation` does.
    pub(super) fn evict(&mut self, pod: &Evictable) -> bool {
        let mut is_violation = false;
        for budget in &pod.budgets {
            if let Some(allowed) = self.0.get_mut(*budget) {
                *allowed = allowed.saturating_sub(1);
                is_violation |= *allowed < 0;
            }
        }
        is_violation
    }
}
