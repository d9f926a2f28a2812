//! Processes announce their groups, and leave.

use super::control::GroupId;
use super::process::{Activity, Process, QuantumState};
use super::scheduler::ChannelGroupScheduler;
use super::waits::Waits;
use crate::ids::{ClientId, ProcessId};
use crate::ledger::{Class, ReturnKind, TokenLedger};
use std::collections::BTreeSet;

impl ChannelGroupScheduler {
    /// A process announces all its groups, in place of those that it announced before.
    ///
    /// A latency-critical process is announced even without a group that can be controlled. A best-effort process
    /// without one is not hardware-scheduled. Returns `false` if the process is not, or is on probation. The known setting
    /// of a group is kept if the group is the process's and among those that have `stayed`.
    pub fn announce(
        &mut self,
        id: ProcessId,
        (client, class): (ClientId, Class),
        (groups, stayed): (Vec<GroupId>, &BTreeSet<GroupId>),
        tokens: &mut TokenLedger,
        now: u64,
    ) -> bool {
        let stays = |group: &GroupId| stayed.contains(group) && self.owns(id, *group);
        let unknown: Vec<GroupId> = groups.iter().copied().filter(|group| !stays(group)).collect();
        self.take_over(id, &groups);
        unknown.into_iter().for_each(|group| self.reconciler.add(group));
        if groups.is_empty() && !class.is_latency_critical() {
            self.remove_process(id, tokens, now);
            return false;
        }
        // A group that failed lately is not relied on, whichever connection of its process announces it.
        let on_probation = groups.iter().any(|group| self.reconciler.is_delayed(*group, now));
        let new = Process {
            client,
            class,
            limited: tokens.is_limited(client),
            groups: Vec::new(),
            on_probation,
            stopped: false,
            suspended: tokens.is_suspended(client),
            activity: Activity::UNKNOWN,
            waits: Waits::default(),
            has_short_bursts: false,
            may_leave_at_once: false,
            wants_default_slices: false,
            contexts_at_once_since: None,
            lead_us: 0,
            worked_since_ns: 0,
            works_until: 0,
            quantum: QuantumState::Idle,
            ended_at: None,
            enabled_since: None,
            disabled_at: now,
            probes: 0,
        };
        let process = self.processes.entry(id).or_insert(new);
        process.groups = groups;
        let on_probation = process.on_probation;
        self.schedule_by_quanta(id, tokens, now);
        !on_probation
    }

    /// Releases the process's groups that it does not announce again. Removes the announced ones from any other process
    /// entry, which is another connection of the same process.
    fn take_over(&mut self, id: ProcessId, announced: &[GroupId]) {
        for (other, process) in &mut self.processes {
            let groups = std::mem::take(&mut process.groups).into_iter();
            let (again, others): (Vec<_>, Vec<_>) = groups.partition(|group| announced.contains(group));
            if *other != id {
                process.groups = others;
                continue;
            }
            process.groups = again;
            for group in others {
                self.reconciler.release(group);
                self.enabled_group.take_if(|enabled| *enabled == group);
            }
        }
    }

    /// A process has disconnected. It may be about to end: its groups are released after a delay, unless they are
    /// [forgotten](Self::forget_group) or announced again by then.
    pub fn disconnect(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let groups = self.processes.get_mut(&id).map(|process| std::mem::take(&mut process.groups));
        for group in groups.into_iter().flatten() {
            self.reconciler.freeze(group, now.saturating_add(self.policy.disconnect_ns));
        }
        self.remove_process(id, tokens, now);
    }

    /// A process has left, or its class or client changed: its groups are released.
    pub fn remove_process(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let Some(process) = self.processes.remove(&id) else { return };
        process.groups.iter().for_each(|group| self.reconciler.release(*group));
        if process.is_best_effort() {
            // It may have left the ledger already.
            let _ = tokens.set_kind(id, ReturnKind::Returns, now);
            self.update_client_running(process.client, tokens, now);
        }
    }

    /// Removes a group whose process has ended.
    pub fn forget_group(&mut self, group: GroupId) {
        self.reconciler.forget(group);
        self.last_choice.remove(&group);
        self.enabled_group.take_if(|enabled| *enabled == group);
        for process in self.processes.values_mut() {
            process.groups.retain(|other| *other != group);
        }
    }
}
