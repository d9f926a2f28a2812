//! A second enabled group of the client that has the quantum, while a latency-critical process works.
//!
//! Processes and contexts of a client may take turns. With one enabled group each turn needs a hand-off. So a second group is enabled with
//! a slice of [`TINY_SLICE_US`] beside the first one, which keeps the shortest slice. A request that comes while the second group runs
//! waits for the rest of that slice. Therefore every latency-critical process that works has to report that its hold kernels lead by it.
//! Such a report costs at most the latency of the reporting process, so it is taken as it is.
//!
//! Two groups that always have work lose a third of their rate beside each other. Processes and contexts of a client that have work at the
//! same time are therefore enabled one after the other.

use super::control::GroupId;
use super::hand_off_window::HandOffWindow;
use super::policy::TINY_SLICE_US;
use super::process::{Process, QuantumState};
use super::scheduler::ChannelGroupScheduler;
use crate::ids::{ClientId, ProcessId};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{BTreeMap, BTreeSet};

/// Two processes or contexts that have both had work for this long do not take turns, nanoseconds.
const AT_ONCE_NS: u64 = 5_000_000;

/// How often second groups may begin: each begin and each end costs some controls, and reports decide about them.
const BEGIN_RATE: Rate = Rate::one_per(4, 10_000_000_000);

/// Which second group is enabled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SecondGroup {
    group: Option<GroupId>,
    /// A best-effort client could use a second group.
    is_wanted: bool,
    /// All latency-critical processes that work lead by its slice.
    is_allowed: bool,
    begins: RateLimiter,
    /// When it may change beside latency-critical processes that work.
    pub(super) window: HandOffWindow,
    /// The groups that keep the slice of a second one, so that it is not set in each quantum.
    long: BTreeSet<GroupId>,
    /// Clients with processes or contexts that have work at the same time, and until when that counts.
    at_once: BTreeMap<ClientId, u64>,
}

impl Default for SecondGroup {
    fn default() -> Self {
        Self {
            group: None,
            is_wanted: false,
            is_allowed: false,
            begins: RateLimiter::full(BEGIN_RATE),
            window: HandOffWindow::default(),
            long: BTreeSet::new(),
            at_once: BTreeMap::new(),
        }
    }
}

impl SecondGroup {
    pub(super) fn is(&self, group: GroupId) -> bool {
        self.group == Some(group)
    }

    /// No second group is enabled any more.
    pub(super) fn withdraw(&mut self) {
        (self.group, self.is_wanted, self.is_allowed) = (None, false, false);
        self.window.withdraw();
    }

    /// The group becomes the first one.
    pub(super) fn becomes_first(&mut self, group: GroupId) {
        self.long.remove(&group);
    }

    /// Slice of a best-effort group of which the first one would have this slice, microseconds.
    pub(super) fn slice_us(&self, group: GroupId, first_us: u64) -> u64 {
        if self.long.contains(&group) { first_us.max(TINY_SLICE_US) } else { first_us }
    }
}

impl ChannelGroupScheduler {
    /// Sets by how much the hold kernels of a process lead, besides the time of a context switch, microseconds. It counts only while the
    /// process is latency-critical.
    pub fn set_lead(&mut self, id: ProcessId, lead_us: u64) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.lead_us = lead_us;
        }
    }

    /// Sets since when several contexts of a process have had work at the same time, as it reports; `None`: they have not.
    pub fn set_contexts_at_once(&mut self, id: ProcessId, since: Option<u64>) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.contexts_at_once_since = since;
        }
    }

    /// By how much the hold kernels of latency-critical processes should lead, besides the time of a context switch, microseconds.
    pub const fn wanted_lead_us(&self) -> u64 {
        if self.second.is_wanted { TINY_SLICE_US } else { 0 }
    }

    /// Whether a second group is enabled.
    pub const fn has_second_group(&self) -> bool {
        self.second.group.is_some()
    }

    /// Whether the second group's process holds a grant, or one that has ended and is extended.
    pub(super) fn second_continues(&self, now: u64) -> bool {
        let owner = self.second.group.and_then(|group| self.owner_of(group));
        owner.is_some_and(|owner| match owner.quantum {
            QuantumState::Granted => !owner.stays_disabled(),
            QuantumState::Ending => self.extended_until(owner).is_some_and(|until| now < until),
            QuantumState::Idle | QuantumState::Waiting => false,
        })
    }

    /// Chooses the second group, after the first one and the slices.
    pub(super) fn choose_second_group(&mut self, now: u64) {
        let Some(next) = self.next_second_group(now) else {
            return self.second.window.withdraw();
        };
        let critical = self.processes.values().filter(|process| !process.is_best_effort());
        let critical = critical.map(|process| process.activity);
        let is_undisturbed = self.reconciler.may_run(next) || self.window.is_still_open(now);
        if is_undisturbed || self.second.window.is_open(&self.policy, now, critical) {
            let is_known = |group: &GroupId| self.processes.values().any(|it| it.groups.contains(group));
            self.second.long.retain(is_known);
            self.second.long.insert(next);
            self.second.group = Some(next);
            self.count_choice(next);
        }
    }

    /// Keeps the second group, or ends it. Then returns the one that is to follow.
    fn next_second_group(&mut self, now: u64) -> Option<GroupId> {
        self.observe_work_at_once(now);
        let clients: BTreeSet<ClientId> =
            self.hardware_scheduled().map(|(_, process)| process.client).collect();
        // Without slices a request would wait for longer than hold kernels lead.
        let has_short_slices = self.policy.slices && !self.default_slices();
        self.second.is_wanted =
            has_short_slices && clients.into_iter().any(|client| self.takes_turns(client, now));
        let leads = |process: &Process| process.lead_us >= TINY_SLICE_US;
        let allowed = self.second.is_wanted && self.working_critical(now).all(leads);
        self.second.is_allowed = allowed && (self.second.is_allowed || self.second.begins.try_take(1, now));
        let kept = self.second.group.take();
        let first = self.enabled_group.filter(|_| self.second.is_allowed)?;
        let owner = self.owner_of(first)?;
        let client = owner.client;
        if !self.takes_turns(client, now) {
            return None;
        }
        let is_candidate = |process: &&Process| {
            process.client == client && process.is_hardware_scheduled() && !process.stays_disabled()
        };
        let candidates = || self.processes.values().filter(is_candidate);
        let granted = || candidates().filter(|process| process.quantum == QuantumState::Granted);
        let waits = |process: &Process| {
            let groups = process.controlled_groups();
            process.activity.busy && !groups.iter().any(|group| *group == first || kept == Some(*group))
        };
        // A group of which a slice could not be set has the driver's.
        let is_possible = |group: GroupId| group != first && !self.reconciler.has_failed(group);
        // Between its turns a process is idle. It gives way only to one that has work and no group.
        let stays = |group: &GroupId| {
            let mut owners = candidates().filter(|process| process.controlled_groups().contains(group));
            is_possible(*group) && owners.any(|owner| owner.activity.busy || !granted().any(waits))
        };
        if let Some(group) = kept.filter(stays) {
            self.second.group = Some(group);
            return None;
        }
        if owner.quantum != QuantumState::Granted {
            return None;
        }
        let others = granted().flat_map(|process| {
            process.controlled_groups().iter().map(|group| (!process.activity.busy, *group))
        });
        let last_choice = |group: &GroupId| self.last_choice.get(group).copied().unwrap_or(0);
        let others = others.filter(|(_, group)| is_possible(*group));
        others.min_by_key(|(is_idle, group)| (*is_idle, last_choice(group), *group)).map(|(_, group)| group)
    }

    /// Notes the clients of which two processes, or two contexts of a process, have had work for some time. Work that only waits is none.
    fn observe_work_at_once(&mut self, now: u64) {
        self.second.at_once.retain(|_, until| now < *until);
        let is_long = |since: u64| now.saturating_sub(since) >= AT_ONCE_NS;
        let mut working = BTreeSet::new();
        let mut at_once = Vec::new();
        for (_, process) in self.hardware_scheduled() {
            let executes = process.activity.busy && process.waits.reported_since.is_none();
            let is_second = executes && is_long(process.activity.since_ns) && !working.insert(process.client);
            if is_second || process.contexts_at_once_since.is_some_and(is_long) {
                at_once.push(process.client);
            }
        }
        let until = now.saturating_add(self.policy.absent_ns);
        self.second.at_once.extend(at_once.into_iter().map(|client| (client, until)));
    }

    /// Whether a client has several groups of processes with work lately, and does not have work in several of them at the same time.
    fn takes_turns(&self, client: ClientId, now: u64) -> bool {
        let worked = |process: &Process| {
            let idle = process.activity.idle_for(now).unwrap_or(0);
            process.client == client && !process.stays_disabled() && idle < self.policy.absent_ns
        };
        let working = self.hardware_scheduled().filter(|(_, process)| worked(process));
        let groups: usize = working.map(|(_, process)| process.controlled_groups().len()).sum();
        groups > 1 && !self.second.at_once.contains_key(&client)
    }
}
