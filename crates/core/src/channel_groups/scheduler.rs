//! The state of channel-group scheduling, and the controls made for it.

use super::control::{Control, ControlOp, ControlOutcome, GroupId};
use super::hand_off_window::HandOffWindow;
use super::policy::ChannelGroupPolicy;
use super::process::{Activity, Process, QuantumState};
use super::reconciler::Reconciler;
use super::second_group::SecondGroup;
use super::slices::SliceChoice;
use crate::ids::{ClientId, ProcessId};
use crate::ledger::{Class, ReturnKind, TokenLedger};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{BTreeMap, BTreeSet};

/// What the caller has to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A control of the process failed repeatedly. The process is token-scheduled until
    /// [`ChannelGroupScheduler::end_probation`] returns it.
    ProbationBegan(ProcessId),
    /// The last group of the process was destroyed. The process is token-scheduled until it announces others.
    GroupsDestroyed(ProcessId),
    /// A group is not controlled any more.
    Released(GroupId),
}

/// The channel-group scheduler of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelGroupScheduler {
    pub(super) policy: ChannelGroupPolicy,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    pub(super) reconciler: Reconciler,
    pub(super) window: HandOffWindow,
    pub(super) slices: SliceChoice,
    /// Controls that enable or disable best-effort groups; a token is a nanosecond in which controls are earned. A
    /// control that can wait does so until one is earned. One that cannot is made at once and earned afterwards.
    controls: RateLimiter,
    /// A client waits for a grant.
    pub(super) contended: bool,
    /// Best-effort clients that hold a grant.
    pub(super) holders: BTreeSet<ClientId>,
    /// A latency-critical process has had work lately ([`ChannelGroupPolicy::absent_ns`]).
    pub(super) is_guarded: bool,
    /// The best-effort group that is enabled while a latency-critical process works.
    pub(super) enabled_group: Option<GroupId>,
    /// The group that is enabled beside it.
    pub(super) second: SecondGroup,
    /// The grant of that group's client was prolonged: another group of the client is next.
    pub(super) rotate: bool,
    /// For each best-effort group, a number that is higher the later the group was chosen.
    pub(super) last_choice: BTreeMap<GroupId, u64>,
    /// How often [`Self::begin_check`] was called.
    pub(super) checks: usize,
}

impl ChannelGroupScheduler {
    /// A scheduler without processes.
    pub fn new(policy: ChannelGroupPolicy) -> Self {
        let burst = policy.control_burst.max(1).saturating_mul(policy.control_ns);
        Self {
            policy,
            processes: BTreeMap::new(),
            reconciler: Reconciler::new(policy.slices),
            window: HandOffWindow::default(),
            slices: SliceChoice::default(),
            controls: RateLimiter::full(Rate::one_per(burst, 1)),
            contended: false,
            holders: BTreeSet::new(),
            is_guarded: false,
            enabled_group: None,
            second: SecondGroup::default(),
            rotate: false,
            last_choice: BTreeMap::new(),
            checks: 0,
        }
    }

    /// Sets the activity that a process reports.
    pub fn set_activity(&mut self, id: ProcessId, activity: Activity) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.activity = activity;
        }
    }

    /// Sets since when all work of a busy process only waits, as it reports: each of its streams with work has a command at its head that
    /// uses no multiprocessor. `None`: a kernel may run.
    pub fn set_waits(&mut self, id: ProcessId, since: Option<u64>) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.waits.reported_since = since;
        }
    }

    /// The next control to make, if none is in flight.
    pub fn begin_control(&mut self, now: u64) -> Option<Control> {
        if self.reconciler.in_flight().is_some() {
            return None;
        }
        self.reconciler.release_frozen(now);
        self.reconciler.retry(now);
        self.plan(now);
        let control = self.reconciler.begin()?;
        let best_effort = |id| self.processes.get(&id).is_some_and(Process::is_best_effort);
        if matches!(control.op, ControlOp::Disable | ControlOp::Enable)
            && self.owner(control.group).is_some_and(best_effort)
        {
            self.count_control(now);
        }
        Some(control)
    }

    /// Counts a control that is made. The debt is bounded: after the hand-off of a client with many groups, others
    /// would otherwise be late for long.
    pub(super) fn count_control(&mut self, now: u64) {
        self.controls.take(self.policy.control_ns, self.policy.max_extension_ns, now);
    }

    /// From when on a control that can wait may be made.
    pub(super) fn control_ready_at(&self) -> u64 {
        self.controls.ready_at(self.policy.control_ns).unwrap_or_default()
    }

    /// The control in flight has ended at `now`.
    pub fn finish_control(
        &mut self,
        outcome: ControlOutcome,
        tokens: &mut TokenLedger,
        now: u64,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let control = self.reconciler.done(outcome, now);
        let owner = control.and_then(|control| self.owner(control.group));
        match (control, outcome) {
            (Some(Control { op: ControlOp::SetSlice(_), .. }), ControlOutcome::Done) | (None, _) => {}
            (Some(_), ControlOutcome::Done) => {
                if let Some(id) = owner {
                    self.update_running(id, tokens, now);
                }
            }
            (Some(Control { group, .. }), ControlOutcome::Gone) => {
                self.forget_group(group);
                if let Some(id) = owner {
                    self.update_running(id, tokens, now);
                    let lost_all = |process: &Process| process.is_best_effort() && process.groups.is_empty();
                    if self.processes.get(&id).is_some_and(lost_all) {
                        self.remove_process(id, tokens, now);
                        events.push(Event::GroupsDestroyed(id));
                    }
                }
                events.push(Event::Released(group));
            }
            // A group without an owner is being released already.
            (Some(Control { group, .. }), ControlOutcome::Failed) => {
                if let Some(id) = owner
                    && self.reconciler.has_failed(group)
                    && self.begin_probation(id, tokens, now)
                {
                    events.push(Event::ProbationBegan(id));
                }
            }
        }
        events.extend(self.take_released().into_iter().map(Event::Released));
        events
    }

    /// The groups that were released since the last call. Some need no control for that.
    pub fn take_released(&mut self) -> Vec<GroupId> {
        self.reconciler.take_released()
    }

    /// Updates since when a process is enabled, and reports to the ledger whether its client is.
    pub(super) fn update_running(&mut self, id: ProcessId, tokens: &mut TokenLedger, now: u64) {
        let best_effort = |process: &&mut Process| process.is_best_effort();
        let Some(process) = self.processes.get_mut(&id).filter(best_effort) else { return };
        let enabled = process.controlled_groups().iter().any(|group| self.reconciler.may_run(*group));
        if process.enabled_since.is_some() && !enabled {
            process.disabled_at = now;
        }
        process.enabled_since = if enabled { process.enabled_since.or(Some(now)) } else { None };
        let client = process.client;
        self.update_client_running(client, tokens, now);
    }

    pub(super) fn update_client_running(&self, client: ClientId, tokens: &mut TokenLedger, now: u64) {
        let processes = self.processes.values().filter(|process| process.client == client);
        let mut groups = processes.flat_map(Process::controlled_groups);
        let enabled = groups.any(|group| self.reconciler.may_run(*group));
        tokens.set_enabled(client, enabled, now);
    }

    pub(super) fn owner_of(&self, group: GroupId) -> Option<&Process> {
        self.processes.values().find(|process| process.groups.contains(&group))
    }

    fn owner(&self, group: GroupId) -> Option<ProcessId> {
        self.processes.iter().find(|(_, process)| process.groups.contains(&group)).map(|(id, _)| *id)
    }

    /// The processes whose activity the scheduler reads.
    pub fn observed_processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.processes.keys().copied()
    }

    /// Whether channel groups of a process are under control and relied on.
    pub fn has_controlled_groups(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| !process.controlled_groups().is_empty())
    }

    /// Whether a group belongs to a process and is under control, be it on probation.
    pub fn owns(&self, id: ProcessId, group: GroupId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.groups.contains(&group))
    }

    /// Whether the scheduler reads the activity of a process.
    pub fn is_observed(&self, id: ProcessId) -> bool {
        self.processes.contains_key(&id)
    }

    /// Changes the class of a client. The ledger has been changed already.
    pub fn set_class(&mut self, client: ClientId, class: Class, tokens: &mut TokenLedger, now: u64) {
        for (id, process) in self.processes.iter_mut().filter(|(_, process)| process.client == client) {
            if process.class.is_latency_critical() == class.is_latency_critical() {
                process.class = class;
                continue;
            }
            (process.class, process.quantum) = (class, QuantumState::Idle);
            // A latency-critical process is never stopped.
            process.stopped = false;
            let scheduled = process.is_hardware_scheduled();
            let kind = if scheduled { ReturnKind::HardwareScheduled } else { ReturnKind::Returns };
            let _ = tokens.set_kind(*id, kind, now);
        }
        // Best-effort processes without groups are not hardware-scheduled.
        self.processes.retain(|_, process| !process.is_best_effort() || !process.groups.is_empty());
        let processes = self.processes.iter().filter(|(_, process)| process.client == client);
        let ids: Vec<ProcessId> = processes.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.update_running(id, tokens, now));
    }

    /// State of a process in the ledger, if it is hardware-scheduled.
    pub fn quantum_state(&self, id: ProcessId) -> Option<QuantumState> {
        let process = self.processes.get(&id).filter(|process| process.is_hardware_scheduled());
        process.map(|process| process.quantum)
    }

    /// The hardware-scheduled processes whose groups are enabled under a grant, with the time since when a group of each is enabled.
    pub fn running_processes(&self) -> impl Iterator<Item = (ProcessId, u64)> + '_ {
        let in_quantum = |process: &Process| {
            process.is_hardware_scheduled()
                && matches!(process.quantum, QuantumState::Granted | QuantumState::Ending)
        };
        let running = self.processes.iter().filter(move |(_, process)| in_quantum(process));
        running.filter_map(|(id, process)| Some((*id, process.enabled_since?)))
    }

    /// Since when no group of a process is enabled; `None` if one is.
    pub fn disabled_since(&self, id: ProcessId) -> Option<u64> {
        let process = self.processes.get(&id).filter(|process| process.enabled_since.is_none());
        process.map(|process| process.disabled_at)
    }

    /// Hand-offs that disturbed a latency-critical process because no good moment came in time.
    pub const fn forced_hand_offs(&self) -> u64 {
        self.window.forced + self.second.window.forced
    }
}
