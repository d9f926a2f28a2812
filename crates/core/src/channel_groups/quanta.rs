//! Requests and returns grants in the token ledger for the hardware-scheduled processes, which do not do so themselves.

use super::process::{Process, QuantumState};
use super::scheduler::ChannelGroupScheduler;
use crate::ids::ProcessId;
use crate::ledger::{Action, GrantEnd, GrantRequest, TokenLedger};

impl ChannelGroupScheduler {
    /// Requests grants for processes that became busy, and returns the grants of those that are idle or were disabled.
    /// Call it before each [`TokenLedger::advance`].
    pub fn request_and_return_grants(&mut self, tokens: &mut TokenLedger, now: u64) {
        self.read_ledger(tokens, now);
        self.read_waits(now);
        tokens.set_default_slices(self.default_slices());
        tokens.set_working(now, |id| {
            self.processes.get(&id).is_none_or(|process| process.executes() && !process.stays_disabled())
        });
        self.leave_pauses_out(tokens, now);
        let ids: Vec<ProcessId> = self.hardware_scheduled().map(|(id, _)| id).collect();
        self.report_alternating(tokens, now);
        let control_earned = now >= self.control_ready_at();
        for id in ids {
            let Some(process) = self.processes.get(&id) else { continue };
            let disabled = !process.groups.iter().any(|group| self.reconciler.may_run(*group));
            let returns = match process.quantum {
                QuantumState::Granted if process.stays_disabled() => disabled,
                QuantumState::Granted if tokens.is_beside(process.client) => {
                    self.is_unused(process, now).is_some()
                }
                QuantumState::Granted => {
                    let idle = self.is_unused(process, now);
                    control_earned && idle.is_some_and(|idle| idle >= self.allowed_idle_ns(id))
                }
                QuantumState::Ending => disabled,
                QuantumState::Idle | QuantumState::Waiting => false,
            };
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if process.quantum == QuantumState::Waiting && process.stays_disabled() {
                tokens.withdraw(id, now);
                process.quantum = QuantumState::Idle;
            }
            if returns {
                // Its usage is the time for which it was enabled, which the ledger counts.
                let _ = tokens.returned(id, now, 0, 0);
                process.quantum = QuantumState::Idle;
                process.waits.count_grant(now);
            }
            let executes = process.executes();
            let is_probed = control_earned && disabled && now >= process.probe_at(&self.policy);
            let wants = !process.stays_disabled() && (executes || is_probed);
            if process.quantum == QuantumState::Idle
                && wants
                && tokens.request(id, now, GrantRequest::default()).is_ok()
            {
                process.quantum = QuantumState::Waiting;
                process.probes = if process.activity.busy { 0 } else { process.probes + 1 };
            }
        }
        self.read_ledger(tokens, now);
    }

    /// Copies the part of the ledger's state that the plan depends on.
    fn read_ledger(&mut self, tokens: &TokenLedger, now: u64) {
        self.holders = tokens.holders().map(|(client, _)| client).collect();
        self.contended = tokens.waiting().next().is_some() || self.holders.len() > 1;
        for process in self.processes.values_mut() {
            process.limited = tokens.is_limited(process.client);
            process.suspended = tokens.is_suspended(process.client);
            process.has_short_bursts = tokens.has_short_bursts(process.client);
            process.may_leave_at_once = tokens.may_leave_at_once(process.client, now);
        }
    }

    /// Applies a decision of the ledger. Returns `false` if it concerns no hardware-scheduled process.
    pub fn apply_action(&mut self, action: &Action) -> bool {
        let (id, state) = match action {
            Action::Grant { process, .. } => (*process, QuantumState::Granted),
            Action::Disable { process } => (*process, QuantumState::Ending),
            Action::Revoke { process, reason: GrantEnd::NotReturned } => (*process, QuantumState::Ending),
            Action::Revoke { process, .. } => (*process, QuantumState::Idle),
            Action::Extend { process, .. } => (*process, QuantumState::Granted),
            Action::Contended { .. } | Action::Ended { .. } => return false,
        };
        let scheduled = |process: &&mut Process| process.is_hardware_scheduled();
        let Some(process) = self.processes.get_mut(&id).filter(scheduled) else { return false };
        self.rotate |= matches!(action, Action::Extend { .. });
        if state == QuantumState::Granted && process.quantum != QuantumState::Granted {
            process.waits.granted_at = None;
        }
        process.quantum = state;
        true
    }

    /// How long a process that holds a grant may be idle. One that may leave at once does: its groups stay enabled beside the next holder's.
    fn allowed_idle_ns(&self, id: ProcessId) -> u64 {
        let leaves = |process: &Process| {
            process.waits.since.is_some() && process.may_leave_at_once && !process.limited
        };
        if self.contended && self.processes.get(&id).is_some_and(leaves) {
            return 0;
        }
        // While a latency-critical process works, another process of the same client cannot run beside this one, unless it has the second group.
        let busy = |process: &Process| process.quantum == QuantumState::Granted && process.activity.busy;
        let mut others = self.hardware_scheduled();
        let sibling_waits = self.is_guarded && others.any(|(other, process)| other != id && busy(process));
        if self.contended || sibling_waits { self.policy.idle_ns } else { self.policy.uncontended_idle_ns }
    }

    /// When to call [`Self::begin_control`] again if nothing else happens.
    pub fn next_wakeup(&self, now: u64) -> Option<u64> {
        // While a control is in flight no other can begin: the caller waits for its end.
        let can_begin = self.reconciler.in_flight().is_none();
        let earned_at = self.control_ready_at();
        let window = self.window.wake_at(&self.policy, now).into_iter();
        let window = window.chain(self.second.window.wake_at(&self.policy, now)).filter(|_| can_begin);
        let processes = self.hardware_scheduled().filter_map(|(id, process)| match process.quantum {
            QuantumState::Granted => {
                let allowed = self.allowed_idle_ns(id);
                let poll = if self.contended { self.policy.poll_ns } else { allowed };
                let unearned = earned_at.saturating_sub(now);
                let left =
                    self.is_unused(process, now).map(|idle| allowed.saturating_sub(idle).max(unearned));
                Some(now.saturating_add(left.unwrap_or(poll).max(self.policy.window_poll_ns)))
            }
            QuantumState::Idle if process.stays_disabled() => None,
            QuantumState::Idle => {
                let poll = now.saturating_add(self.policy.idle_poll_ns);
                let disabled = !process.groups.iter().any(|group| self.reconciler.may_run(*group));
                let probe = disabled.then(|| process.probe_at(&self.policy).max(earned_at).max(now));
                Some(probe.map_or(poll, |probe| probe.min(poll)))
            }
            QuantumState::Ending => self.extended_until(process).filter(|until| can_begin && *until > now),
            QuantumState::Waiting => None,
        });
        let disconnected = self.reconciler.frozen_until().filter(|_| can_begin);
        let retry = self.reconciler.retry_at(now).filter(|_| can_begin);
        let slices = self.default_slices_at(now).filter(|_| can_begin).map(|at| at.max(now));
        let absence = self.next_absence(now);
        processes.chain(window).chain(disconnected).chain(retry).chain(slices).chain(absence).min()
    }

    /// The hardware-scheduled processes.
    pub(super) fn hardware_scheduled(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        let processes = self.processes.iter().filter(|(_, process)| process.is_hardware_scheduled());
        processes.map(|(id, process)| (*id, process))
    }
}
