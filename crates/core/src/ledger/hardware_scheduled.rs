//! Hardware-scheduled processes: the channel-group scheduler requests and returns grants for them, and disables them
//! when their quantum ends.

use super::{Action, GrantEnd, Policy, Refused, ReturnKind, TokenLedger};
use crate::ids::{ClientId, ProcessId};
use crate::share::Share;

impl Policy {
    /// The quantum of a client with this limit.
    pub(super) fn quantum_ns(&self, limit: Share) -> u64 {
        let limited = if limit == Share::ONE { u64::MAX } else { limit.of(self.quota.limit_period_ns) };
        self.quantum_ns.min(limited).max(self.min_quantum_ns.min(self.quantum_ns))
    }
}

impl TokenLedger {
    /// Changes the kind of a process. One that becomes hardware-scheduled keeps its grant. One that becomes
    /// token-scheduled loses its grant and its request: it requests by itself.
    ///
    /// # Errors
    /// When the process is unknown.
    pub fn set_kind(&mut self, process: ProcessId, kind: ReturnKind, now: u64) -> Result<(), Refused> {
        let now = self.at(now);
        let entry = self.processes.get_mut(&process).ok_or(Refused::UnknownProcess(process))?;
        let (client, before) = (entry.client, std::mem::replace(&mut entry.kind, kind));
        if before == kind {
            return Ok(());
        }
        // Of both kinds the request is another's: the scheduler's of channel groups, or the process's own.
        self.withheld.remove(&process);
        let index = self.grants.iter().position(|g| g.client == client);
        if before == ReturnKind::HardwareScheduled {
            entry.waiting = None;
            self.waiting.remove(&process);
            if let Some(index) = index
                && self.grants[index].leave(process, now, None)
            {
                self.finish_if_empty(index, GrantEnd::Withdrawn);
            }
            self.mark_idle_if_quiet(client, now);
        } else if let Some(index) = index {
            self.grants[index].set_kind(process, kind, now);
        }
        self.update_place(client, now);
        Ok(())
    }

    /// A channel group of a client is enabled from `now` on, or none any more.
    pub fn set_enabled(&mut self, client: ClientId, running: bool, now: u64) {
        let now = self.at(now);
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.running = running;
            for grant in self.grants.iter_mut().filter(|grant| grant.client == client) {
                grant.set_running(running, now);
            }
        }
    }

    /// Records which hardware-scheduled processes report work from `now` on.
    pub fn set_working(&mut self, now: u64, is_working: impl Fn(ProcessId) -> bool) {
        self.at(now);
        for grant in &mut self.grants {
            grant.works = grant.members.iter().any(|member| is_working(member.process));
        }
    }

    /// Of the time before the last [`Self::set_working`], this process executed nothing for `pause_ns`, although it reported work before. Counts
    /// where it holds a grant alone.
    pub fn leave_pause_out(&mut self, process: ProcessId, pause_ns: u64) {
        for grant in &mut self.grants {
            if matches!(grant.members.as_slice(), [only] if only.process == process) {
                grant.executed_ns = grant.executed_ns.saturating_sub(pause_ns);
            }
        }
    }

    /// The deadline of the grant at `index` has come: its hardware-scheduled processes continue, or are to be disabled.
    pub(super) fn end_quantum(&mut self, index: usize, now: u64) {
        if self.grants[index].can_continue() && !self.grants[index].beside {
            self.charge_so_far(index, now);
            let client = self.grants[index].client;
            if self.choose(now, Some(client)) == Some(client) {
                return self.renew_quantum(index, now);
            }
        }
        let members = self.grants[index].members.iter_mut();
        for member in members.filter(|member| member.is_hardware_scheduled() && !member.stopping) {
            member.stopping = true;
            self.actions.push(Action::Disable { process: member.process });
        }
    }

    /// Charges a grant up to now, so that its client is comparable with the others.
    fn charge_so_far(&mut self, index: usize, now: u64) {
        let grant = &mut self.grants[index];
        let running = grant.is_running();
        grant.set_running(false, now);
        grant.ended = now;
        let ended = grant.clone();
        self.charge_grant(&ended, 0, GrantEnd::Continued);
        let shared = self.shared;
        let grant = &mut self.grants[index];
        grant.restart(now, shared);
        grant.set_running(running, now);
    }

    /// Gives the same client another quantum.
    fn renew_quantum(&mut self, index: usize, now: u64) {
        let client = self.grants[index].client;
        let limit = self.clients.get(&client).map_or(Share::ONE, |client| client.spec.limit);
        self.epoch += 1;
        let deadline = self.deadline_for(client, now, self.policy.quantum_ns(limit));
        let grant = &mut self.grants[index];
        grant.deadline = deadline;
        grant.epoch = self.epoch;
        let (epoch, deadline) = (grant.epoch, grant.deadline);
        let prolong = |process| Action::Extend { process, epoch, deadline };
        self.actions.extend(grant.members.iter().map(|member| prolong(member.process)));
    }
}
