//! A hardware-scheduled process, or a process whose presence matters to those, and the activity that it reports.

use super::control::GroupId;
use super::policy::ChannelGroupPolicy;
use super::waits::Waits;
use crate::ids::ClientId;
use crate::ledger::Class;

/// The pause between two probes grows to 2 to this power times the first.
const PROBE_DOUBLINGS: u32 = 4;

/// Activity that a process reports. It is used only where a false report harms the reporting process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Activity {
    /// Work was submitted and is not known to have finished.
    pub busy: bool,
    /// When `busy` last changed, nanoseconds.
    pub since_ns: u64,
}

impl Activity {
    /// Assumed of a process that reports nothing.
    pub const UNKNOWN: Self = Self { busy: true, since_ns: 0 };

    /// How long the process has been idle at `now`; `None` while it is busy.
    pub const fn idle_for(self, now: u64) -> Option<u64> {
        if self.busy { None } else { Some(now.saturating_sub(self.since_ns)) }
    }

    /// The activity with `since_ns` limited to `now`: a reported time in the future is not possible.
    pub fn known_at(self, now: u64) -> Self {
        Self { since_ns: self.since_ns.min(now), ..self }
    }
}

/// State of a best-effort process in the token ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantumState {
    /// It has no request for a grant.
    Idle,
    /// A grant was requested for it.
    Waiting,
    /// It holds a grant.
    Granted,
    /// Its quantum has ended: its groups are being disabled.
    Ending,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) client: ClientId,
    pub(super) class: Class,
    /// Its client has a limit below the whole GPU, which holds even while no other client wants the GPU.
    pub(super) limited: bool,
    pub(super) groups: Vec<GroupId>,
    /// A control of it has failed: its groups are set free and not relied on.
    pub(super) on_probation: bool,
    /// Its groups stay disabled, whatever it reports.
    pub(super) stopped: bool,
    /// Its client is suspended.
    pub(super) suspended: bool,
    pub(super) activity: Activity,
    pub(super) waits: Waits,
    /// Its client has short bursts: see [`TokenLedger::has_short_bursts`](crate::ledger::TokenLedger::has_short_bursts).
    pub(super) has_short_bursts: bool,
    /// See [`TokenLedger::may_leave_at_once`](crate::ledger::TokenLedger::may_leave_at_once).
    pub(super) may_leave_at_once: bool,
    /// It reports that it is host-bound.
    pub(super) wants_default_slices: bool,
    /// Since when it reports work in several of its contexts at the same time.
    pub(super) contexts_at_once_since: Option<u64>,
    /// By how much it reports that its hold kernels lead, besides the time of a context switch, microseconds.
    pub(super) lead_us: u64,
    /// The activity when it was last seen to work, and until when it counts as one with work. Kept here, so that a report cannot end it.
    pub(super) worked_since_ns: u64,
    pub(super) works_until: u64,
    pub(super) quantum: QuantumState,
    /// When its quantum ended, while its groups are being disabled.
    pub(super) ended_at: Option<u64>,
    /// Since when one of its groups is enabled; `None` while none is.
    pub(super) enabled_since: Option<u64>,
    /// Since when none of its groups is enabled, or when the last probe ended.
    pub(super) disabled_at: u64,
    /// Probes since it last reported work.
    pub(super) probes: u32,
}

impl Process {
    pub(super) fn is_best_effort(&self) -> bool {
        !self.class.is_latency_critical()
    }

    /// Its groups that are relied on: none while it is on probation.
    pub(super) fn controlled_groups(&self) -> &[GroupId] {
        if self.on_probation { &[] } else { &self.groups }
    }

    /// Whether its quanta are enforced through its channel groups.
    pub(super) fn is_hardware_scheduled(&self) -> bool {
        self.is_best_effort() && !self.controlled_groups().is_empty()
    }

    /// Whether its groups stay disabled, whatever it reports. A latency-critical process is never disabled.
    pub(super) fn stays_disabled(&self) -> bool {
        self.stopped || self.suspended && self.is_hardware_scheduled()
    }

    /// Whether its groups may be enabled beside those of the holder: its work waits, or has just ended to wait, and its client has no limit.
    pub(super) fn alternates(&self, now: u64) -> bool {
        (self.waits.since.is_some() || now < self.waits.alternates_until)
            && !self.limited
            && !self.stays_disabled()
    }

    /// Whether it has work that may execute.
    pub(super) fn executes(&self) -> bool {
        self.activity.busy && self.waits.since.is_none()
    }

    /// When a disabled process that reports idle is probed next: enabled for a moment, less often with each probe that
    /// finds no work. One that waits is probed sooner: a stream of a disabled group does not go on when a wait has ended.
    pub(super) fn probe_at(&self, policy: &ChannelGroupPolicy) -> u64 {
        let probe_ns = match self.activity.busy {
            // Its work has come since.
            true if self.activity.since_ns >= self.disabled_at => 0,
            true => policy.waiting_probe_ns,
            false => policy.probe_ns << self.probes.min(PROBE_DOUBLINGS),
        };
        self.disabled_at.saturating_add(probe_ns)
    }

    /// How long it has been enabled and has executed nothing.
    pub(super) fn idle_for(&self, now: u64) -> Option<u64> {
        let waits_for = || self.waits.since.map(|since| now.saturating_sub(since));
        let (idle, enabled_since) = (self.activity.idle_for(now).or_else(waits_for)?, self.enabled_since?);
        Some(idle.min(now.saturating_sub(enabled_since)))
    }
}
