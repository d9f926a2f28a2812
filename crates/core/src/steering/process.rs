//! A process that is steered, or whose presence matters to those that are.

use super::activity::Activity;
use super::control::GroupId;
use super::policy::SteeringPolicy;
use crate::ids::ClientId;
use crate::ledger::Class;

/// The pause between two moments grows to 2 to this power times the first.
const PROBE_DOUBLINGS: u32 = 4;

/// Where a best-effort process stands with the token ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It does not want the GPU.
    Idle,
    /// It was asked for.
    Waiting,
    /// It holds a grant.
    Granted,
    /// Its time is up: it is being stopped.
    Ending,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) client: ClientId,
    pub(super) class: Class,
    /// It may not have all of the GPU, even while nobody else wants it.
    pub(super) limited: bool,
    pub(super) groups: Vec<GroupId>,
    pub(super) activity: Activity,
    pub(super) turn: Turn,
    /// Since when its time is up, while it is being stopped.
    pub(super) ended_at: Option<u64>,
    /// Since when one of its groups runs; `None` while none does.
    pub(super) runs_since: Option<u64>,
    /// Since when none does, or when it was last let run for a moment.
    pub(super) stopped_at: u64,
    /// How often it was let run for a moment without having said that it wants to.
    pub(super) probes: u32,
}

impl Process {
    pub(super) fn is_best_effort(&self) -> bool {
        self.class == Class::BestEffort
    }

    /// Whether it takes turns over its groups.
    pub(super) fn is_steered(&self) -> bool {
        self.is_best_effort() && !self.groups.is_empty()
    }

    /// When it is to be let run for a moment though it says it is idle, if it is stopped: less and less often while it is right.
    pub(super) fn probe_at(&self, policy: &SteeringPolicy) -> u64 {
        self.stopped_at.saturating_add(policy.probe_ns << self.probes.min(PROBE_DOUBLINGS))
    }

    /// For how long it has run without having anything to do.
    pub(super) fn idle_for(&self, now: u64) -> Option<u64> {
        let (idle, runs_since) = (self.activity.idle_for(now)?, self.runs_since?);
        Some(idle.min(now.saturating_sub(runs_since)))
    }
}
