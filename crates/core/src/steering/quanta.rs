//! Asking and returning in the token ledger for those who do not do it themselves.

use super::process::{Process, Turn};
use super::steer::Steering;
use crate::ids::ProcessId;
use crate::ledger::{Action, Ask, End, TokenLedger};

impl Steering {
    /// Asks for processes that became busy, and returns for those that are idle or were stopped. Before each
    /// [`TokenLedger::advance`].
    pub fn ask_and_return(&mut self, tokens: &mut TokenLedger, now: u64) {
        self.look_around(tokens);
        let ids: Vec<ProcessId> = self.steered().map(|(id, _)| id).collect();
        let earned = now >= self.budget.ready_at(&self.policy);
        for id in ids {
            let Some(process) = self.processes.get(&id) else { continue };
            let has_stopped = !process.groups.iter().any(|group| self.reconciler.may_run(*group));
            let returns = match process.turn {
                Turn::Granted => {
                    earned && process.idle_for(now).is_some_and(|idle| idle >= self.patience(id))
                }
                Turn::Ending => has_stopped,
                Turn::Idle | Turn::Waiting => false,
            };
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if returns {
                // What it used is what it ran.
                let _ = tokens.returned(id, now, 0, 0);
                process.turn = Turn::Idle;
            }
            let busy = process.activity.busy;
            let wants = busy || earned && has_stopped && now >= process.probe_at(&self.policy);
            if process.turn == Turn::Idle && wants && tokens.request(id, now, Ask::default()).is_ok() {
                process.turn = Turn::Waiting;
                process.probes = if busy { 0 } else { process.probes + 1 };
            }
        }
        self.look_around(tokens);
    }

    /// What of the ledger's state decides who may run.
    fn look_around(&mut self, tokens: &TokenLedger) {
        self.contended = tokens.waiting().next().is_some();
        self.holders = tokens.holders().map(|(client, _)| client).collect();
        for process in self.processes.values_mut() {
            process.limited = tokens.is_limited(process.client);
        }
    }

    /// Takes what the ledger decided about a process that is steered; `false` if it is none.
    pub fn act(&mut self, action: &Action) -> bool {
        let (id, turn) = match action {
            Action::Grant { process, .. } => (*process, Turn::Granted),
            Action::Stop { process } => (*process, Turn::Ending),
            Action::Revoke { process, why: End::NotReturned } => (*process, Turn::Ending),
            Action::Revoke { process, .. } => (*process, Turn::Idle),
            Action::Prolong { process, .. } => (*process, Turn::Granted),
            Action::Contended { .. } | Action::Ended { .. } => return false,
        };
        let steered = |process: &&mut Process| process.is_steered();
        let Some(process) = self.processes.get_mut(&id).filter(steered) else { return false };
        self.turns += u64::from(matches!(action, Action::Grant { .. }));
        self.rotate |= matches!(action, Action::Prolong { .. });
        process.turn = turn;
        true
    }

    /// How long a process that holds a grant may be idle.
    fn patience(&self, id: ProcessId) -> u64 {
        // Another process of its client cannot run beside it while somebody latency-critical is present.
        let busy = |process: &Process| process.turn == Turn::Granted && process.activity.busy;
        let beside = self.guarded && self.steered().any(|(other, process)| other != id && busy(process));
        if self.contended || beside { self.policy.idle_ns } else { self.policy.alone_idle_ns }
    }

    /// When to look again, if nothing else happens.
    #[must_use]
    pub fn wake_at(&self, now: u64) -> Option<u64> {
        // While a control is in flight nothing can be begun: its end is what is waited for.
        let begins = self.reconciler.in_flight().is_none();
        let earned_at = self.budget.ready_at(&self.policy);
        let gate = self.gate.wake_at(&self.policy, now).filter(|_| begins);
        let processes = self.steered().filter_map(|(id, process)| match process.turn {
            Turn::Granted => {
                let patience = self.patience(id);
                let look = if self.contended { self.policy.look_ns } else { patience };
                let unearned = earned_at.saturating_sub(now);
                let left = process.idle_for(now).map(|idle| patience.saturating_sub(idle).max(unearned));
                Some(now.saturating_add(left.unwrap_or(look).max(self.policy.gate_look_ns)))
            }
            Turn::Idle => {
                let look = now.saturating_add(self.policy.idle_look_ns);
                let stopped = !process.groups.iter().any(|group| self.reconciler.may_run(*group));
                let probe = stopped.then(|| process.probe_at(&self.policy).max(earned_at).max(now));
                Some(probe.map_or(look, |probe| probe.min(look)))
            }
            Turn::Ending => self.goes_on_until(process).filter(|until| begins && *until > now),
            Turn::Waiting => None,
        });
        let parting = self.parting.values().copied().filter(|_| begins);
        processes.chain(gate).chain(parting).min()
    }

    /// Best-effort processes that are steered.
    pub(super) fn steered(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().filter(|(_, process)| process.is_steered()).map(|(id, process)| (*id, process))
    }
}
