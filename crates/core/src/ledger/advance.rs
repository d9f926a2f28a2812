//! Decisions: which grants end by time, which processes join a grant, which client is next.

use super::grant::Member;
use super::unreturned::Unreturned;
use super::{Action, Deadline, Grant, GrantEnd, ReturnKind, TokenLedger};
use crate::ids::{ClientId, ProcessId};
use crate::share::Share;

/// At least one part in this of the time that a client held the GPU counts in its virtual time, whatever latency-critical
/// clients report to have used of it.
const LEAST_PART: u64 = 10;

impl TokenLedger {
    /// Decides everything that can be decided at `now` and returns the actions in order.
    pub fn advance(&mut self, now: u64) -> Vec<Action> {
        let now = self.at(now);
        self.end_short_pauses(now);
        self.end_debts(now);
        if !self.slots.is_empty() {
            self.end_limits(now);
            self.continue_gangs(now);
        }
        self.end_by_time(now);
        self.grant_unlimited(now);
        self.join_running(now);
        while self.has_room() {
            match self.choose(now, None) {
                Some(client) => self.grant(client, now, false),
                None => break,
            }
        }
        while let Some(client) = self.short_in_line().or_else(|| self.alternating_in_line()) {
            self.grant(client, now, true);
        }
        self.extend(now);
        self.report_contention();
        std::mem::take(&mut self.actions)
    }

    /// When `advance` must be called next if no event comes: `None` while only events can change anything.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let running = self.grants.iter().map(|grant| grant.next_event(self.policy.return_timeout_ns));
        let extended = self.grants.iter().filter_map(|grant| self.extension_at(grant));
        let next = running.chain(extended).chain(self.critical.check_at).chain(self.next_slot()).min();
        let limited = self.queue.first_limited().map(|(at, _)| at);
        if !self.has_room() {
            // A gang whose limit allows it to run may be before the holder.
            let limited = limited.filter(|_| !self.slots.is_empty());
            return next.into_iter().chain(limited).min();
        }
        // A client owes nothing any more once the others have left.
        let leaving = self.leaving.first().map(|(at, _)| *at).filter(|_| !self.indebted.is_empty());
        // A ready client waits for a lingering one, or became ready since the last decision.
        let ready = self.queue.first();
        let ready_at =
            ready.map(|_| self.lingering.iter().map(|(_, until)| *until).min().unwrap_or(self.now));
        next.into_iter().chain(limited).chain(leaving).chain(ready_at).min()
    }

    /// Ends the grant at `index` if no process is left under it; charges it.
    pub(super) fn finish_if_empty(&mut self, index: usize, how: GrantEnd) -> bool {
        if !self.grants[index].members.is_empty() {
            return false;
        }
        let now = self.now;
        self.repay_debts();
        let mut grant = self.grants.swap_remove(index);
        let is_short = self.is_short(&grant);
        if let Some(client) = self.clients.get_mut(&grant.client) {
            client.has_short_bursts = how == GrantEnd::Returned && is_short;
        }
        grant.set_running(false, now);
        let overrun_ns = grant.ended.saturating_sub(grant.deadline);
        self.charge_grant(&grant, overrun_ns, how);
        self.mark_idle_if_quiet(grant.client, now);
        self.update_place(grant.client, now);
        true
    }

    /// Charges a grant for the time up to its end, and reports it.
    pub(super) fn charge_grant(&mut self, grant: &Grant, overrun_ns: u64, how: GrantEnd) {
        let held_ns = grant.held();
        let disposal = self.shared.saturating_sub(grant.shared_start).min(held_ns);
        // A process that runs beside another one also measures time of the other.
        let most = if self.policy.capacity > 1 { held_ns } else { disposal };
        let charged_ns = grant.charge().min(most);
        let left = disposal.saturating_sub(grant.preempted_ns);
        let (client, ended) = (grant.client, grant.ended.max(grant.start));
        self.charge(client, (grant.start, ended), charged_ns, left);
        // A client that holds long and uses little would starve the others if only what it used counted. And the report of
        // a latency-critical client must not keep the virtual time of others from advancing.
        let virtually = charged_ns.max(left).max(disposal / LEAST_PART);
        let uncounted_ns = virtually.saturating_sub(grant.counted_ns);
        // The manager disables a hardware-scheduled process at its deadline. If the process runs on, the client has not caused it. Nor has a
        // gang whose work waits for another GPU: a debt on one GPU would keep its ranks apart. Others are granted beside it meanwhile.
        if grant.hardware_scheduled || self.slots.contains(client) {
            self.advance_virtual_time(client, uncounted_ns);
        } else {
            self.advance_or_owe(client, uncounted_ns);
        }
        let hold_and_wait_ns = grant.hold_and_wait_ns(how);
        self.actions.push(Action::Ended { client, held_ns, charged_ns, overrun_ns, hold_and_wait_ns, how });
    }

    /// Revokes every grant of a client's processes.
    pub(super) fn revoke_all(&mut self, client: ClientId, now: u64) {
        while let Some(index) = self.grants.iter().position(|g| g.client == client) {
            self.revoke_members(index, now, |_| true, GrantEnd::Withdrawn);
        }
        let processes = self.clients.get(&client).map(|client| client.processes.clone()).unwrap_or_default();
        for id in processes {
            let process = self.processes.get_mut(&id);
            if process.is_some_and(|process| std::mem::take(&mut process.unlimited)) {
                self.actions.push(Action::Revoke { process: id, reason: GrantEnd::Withdrawn });
            }
        }
        self.mark_idle_if_quiet(client, now);
    }

    /// Takes back what the processes of a client have requested. Returns those that wait for an answer, and the longest burst
    /// of each. The channel-group scheduler requests anew for hardware-scheduled ones.
    pub(super) fn take_requests(&mut self, id: ClientId, now: u64) -> Vec<(ProcessId, u64)> {
        let mut taken = Vec::new();
        let processes = self.clients.get(&id).map(|client| client.processes.clone()).unwrap_or_default();
        for process_id in processes {
            self.waiting.remove(&process_id);
            self.critical.no_longer_waits(process_id);
            if let Some(process) = self.processes.get_mut(&process_id) {
                let waits = process.waiting.take().is_some();
                if process.kind != ReturnKind::HardwareScheduled
                    && (std::mem::take(&mut process.requested) || waits)
                {
                    taken.push((process_id, process.burst_ns));
                }
            }
        }
        self.mark_idle_if_quiet(id, now);
        self.update_place(id, now);
        taken
    }

    /// Keeps the GPU free for the client's next request until `until`, if the client would be chosen.
    pub(super) fn linger(&mut self, client: ClientId, until: u64) {
        let waits = self.clients.get(&client).is_some_and(|client| client.place.is_some());
        self.lingering.retain(|(lingers, _)| *lingers != client);
        if until > self.now && !waits {
            self.lingering.push((client, until));
        }
    }

    fn revoke_members(
        &mut self,
        index: usize,
        at: u64,
        which: impl Fn(&Member) -> bool,
        why: GrantEnd,
    ) -> bool {
        let members: Vec<Member> = self.grants[index].members.iter().copied().filter(|m| which(m)).collect();
        let Grant { deadline, client, .. } = self.grants[index];
        for member in &members {
            self.grants[index].leave(member.process, at, None);
            self.actions.push(Action::Revoke { process: member.process, reason: why });
        }
        let is_over = self.finish_if_empty(index, why);
        if matches!(why, GrantEnd::Expired | GrantEnd::NotReturned) {
            // The client has been charged for the grant by now, unless other processes still hold it.
            let charged_ns = self.clients.get(&client).map_or(0, |client| client.charged_ns);
            for member in members {
                if let Some(process) = self.processes.get_mut(&member.process) {
                    let by_timer = why == GrantEnd::Expired;
                    process.unreturned = Some(Unreturned::new(deadline, at, charged_ns, by_timer));
                }
            }
        }
        is_over
    }

    fn end_by_time(&mut self, now: u64) {
        let mut index = 0;
        while index < self.grants.len() {
            let deadline = self.grants[index].deadline;
            if now >= deadline || self.is_in_the_way(&self.grants[index], now) {
                let client = self.grants[index].client;
                if self.revoke_members(index, deadline, |m| m.ends_by_timer(), GrantEnd::Expired) {
                    self.linger(client, deadline.saturating_add(self.policy.timer_linger_ns));
                    continue;
                }
                self.end_quantum(index, now);
            }
            let overdue = self.grants[index].overdue_at(self.policy.return_timeout_ns);
            if now >= overdue && self.revoke_members(index, now, |_| true, GrantEnd::NotReturned) {
                continue;
            }
            index += 1;
        }
        self.lingering.retain(|(_, until)| now < *until);
    }

    /// Gives the remaining time of a running grant to processes of its client that have requested one since.
    fn join_running(&mut self, now: u64) {
        for index in 0..self.grants.len() {
            let least = self.policy.join_min_ns.max(1);
            if self.grants[index].deadline.saturating_sub(now) < least && self.may_be_prolonged(index) {
                let until = now.saturating_add(self.policy.quota.base_ns.max(least));
                self.prolong(index, until);
            }
            let left = self.grants[index].deadline.saturating_sub(now);
            self.admit(index, now, |kind, burst| match kind {
                ReturnKind::Returns | ReturnKind::HardwareScheduled => left >= least,
                ReturnKind::ByTimer => left > 0 && burst <= left,
            });
        }
    }

    /// Admits the waiting processes of the grant's client for which `enough(kind, burst)` holds.
    fn admit(&mut self, index: usize, now: u64, enough: impl Fn(ReturnKind, u64) -> bool) {
        let grant = &mut self.grants[index];
        let Some(client) = self.clients.get(&grant.client).filter(|_| !self.waiting.is_empty()) else {
            return;
        };
        let mut admitted = Vec::new();
        for id in &client.processes {
            let Some(process) = self.processes.get_mut(id) else { continue };
            let enough = |waiting: &super::Waiting| enough(process.kind, waiting.burst_ns);
            let Some(waiting) = process.waiting.filter(enough) else {
                continue;
            };
            process.waiting = None;
            self.waiting.remove(id);
            admitted.push((*id, waiting.since));
            if !grant.members.iter().any(|m| m.process == *id) {
                let kind = process.kind;
                grant.join(Member { process: *id, joined: now, kind, stopping: false });
            }
            self.actions.push(Action::Grant {
                process: *id,
                client: grant.client,
                epoch: grant.epoch,
                deadline: Deadline::At(grant.deadline),
                waited_ns: now.saturating_sub(waiting.since),
            });
        }
        self.leave_waits_out(index, &admitted);
    }

    fn grant(&mut self, id: ClientId, now: u64, beside: bool) {
        // It may have waited for its limit while others were granted.
        self.bound_lag(id);
        let Some(client) = self.clients.get(&id) else { return };
        let processes = client.processes.iter().filter_map(|process| self.processes.get(process));
        let burst = processes.clone().map(|p| p.burst_ns).max().unwrap_or(0);
        let mut candidates = processes.filter(|p| p.waiting.is_some());
        let hardware_scheduled = candidates.all(|p| p.kind == ReturnKind::HardwareScheduled);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let quota = if beside && !client.alternates {
            self.policy.short_grant_ns
        } else if hardware_scheduled {
            self.policy.quantum_ns(client.spec.limit)
        } else {
            client.quota.next(&self.policy.quota, burst, client.spec.limit)
        };
        self.epoch += 1;
        let running = client.running;
        let deadline = if beside { now.saturating_add(quota) } else { self.deadline_for(id, now, quota) };
        let mut grant = Grant::new(id, self.epoch, now, deadline, self.shared);
        grant.set_running(running, now);
        grant.beside = beside;
        self.repay_debts();
        self.grants.push(grant);
        self.update_place(id, now);
        // Before the manager shows the grant: the process reads both at once.
        self.report_contention();
        let index = self.grants.len() - 1;
        self.admit(index, now, |_, _| true);
    }

    /// Whether a grant may last longer than until its deadline: no other client waits, and the processes of its client return
    /// it. One whose part ends by timer waits for a grant that its burst fits into.
    fn is_free(&self, grant: &Grant) -> bool {
        let unlimited =
            self.clients.get(&grant.client).is_some_and(|c| c.spec.limit == Share::ONE && !c.suspended);
        let returns = grant.members.iter().all(|m| m.kind == ReturnKind::Returns);
        let mut waiting = self.waiting.iter().filter_map(|id| self.processes.get(id));
        let by_timer = waiting.any(|process| process.kind == ReturnKind::ByTimer);
        // Beside a grant of a gang that is left over, both would go on for ever.
        let is_beside_another = self.grants.len() > 1 && !self.slots.is_empty();
        let wanted = by_timer || !self.queue.is_empty() || is_beside_another;
        self.policy.extend_ahead_ns > 0 && unlimited && returns && !wanted && !grant.beside
    }

    /// Whether the grant at `index` goes on for a process of its client that waits. The others may have work that waits for work of that
    /// process: they could not return the grant before it has run.
    fn may_be_prolonged(&self, index: usize) -> bool {
        let grant = &self.grants[index];
        let processes = self.clients.get(&grant.client).into_iter().flat_map(|client| &client.processes);
        let mut waiting = processes.filter_map(|id| self.processes.get(id)).filter(|p| p.waiting.is_some());
        self.is_free(grant) && waiting.any(|process| process.kind == ReturnKind::Returns)
    }

    /// When a grant is to be extended next: `None` if another client waits, its deadline has passed, or it may not be extended.
    fn extension_at(&self, grant: &Grant) -> Option<u64> {
        let total = grant.deadline.saturating_add(self.policy.quota.base_ns).saturating_sub(grant.start);
        let allowed = self.is_free(grant) && total <= self.policy.longest_extended_ns;
        let free = allowed && self.now < grant.deadline;
        // A base quota shorter than the time ahead would be added again at once.
        let ahead = self.policy.extend_ahead_ns.min(self.policy.quota.base_ns / 2);
        free.then(|| grant.deadline.saturating_sub(ahead))
    }

    /// Moves the deadlines of grants that are about to end and for which no other client waits.
    fn extend(&mut self, now: u64) {
        let due = |grant: &Grant| self.extension_at(grant).is_some_and(|at| at <= now);
        let due: Vec<usize> = (0..self.grants.len()).filter(|index| due(&self.grants[*index])).collect();
        for index in due {
            self.prolong(index, self.grants[index].deadline.saturating_add(self.policy.quota.base_ns));
        }
    }

    /// The client is not ahead by the grant at `index` so far: no other client has waited, or what was not returned is not its fault.
    pub(super) fn count_so_far(&mut self, index: usize) {
        let (client, uncounted_ns) = (self.grants[index].client, self.grants[index].count_to(self.shared));
        self.advance_virtual_time(client, uncounted_ns);
        self.virtual_now = self.virtual_now.max(self.clients.get(&client).map_or(0, |client| client.start));
    }

    /// Moves the deadline of the grant at `index`.
    pub(super) fn prolong(&mut self, index: usize, deadline: u64) {
        self.count_so_far(index);
        let grant = &mut self.grants[index];
        grant.deadline = deadline;
        let epoch = grant.epoch;
        let extension = |member: &Member| Action::Extend { process: member.process, epoch, deadline };
        self.actions.extend(grant.members.iter().map(extension));
    }

    /// Whether another client waits, or is about to: it has worked a moment ago.
    fn is_contended(&self, grant: &Grant) -> bool {
        !self.queue.is_empty() || grant.beside || self.demand.best_effort_clients() > 1
    }

    /// Tells the holders whether another client waits.
    fn report_contention(&mut self) {
        for index in 0..self.grants.len() {
            let contended = self.is_contended(&self.grants[index]);
            let grant = &mut self.grants[index];
            if std::mem::replace(&mut grant.contended, contended) != contended {
                self.actions.push(Action::Contended { client: grant.client, contended });
            }
        }
    }
}
