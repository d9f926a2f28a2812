//! Decisions: which grants end by time, which processes join a grant, which client is next.

use super::grant::Member;
use super::{Action, Candidate, Class, Deadline, Grant, GrantEnd, ReturnKind, TokenLedger};
use crate::ids::{ClientId, ProcessId};
use crate::share::Share;

impl TokenLedger {
    /// Decides everything that can be decided at `now` and returns the actions in order.
    pub fn advance(&mut self, now: u64) -> Vec<Action> {
        let now = self.at(now);
        self.end_by_time(now);
        self.grant_unlimited(now);
        self.join_running(now);
        while self.grants.len() < self.policy.capacity.max(1) {
            match self.choose(now, None) {
                Some(client) => self.grant(client, now),
                None => break,
            }
        }
        self.extend(now);
        self.report_contention();
        std::mem::take(&mut self.actions)
    }

    /// When `advance` must be called next if no event comes: `None` while only events can change anything.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let running = self.grants.iter().filter_map(|grant| self.next_event_of(grant));
        let extended = self.grants.iter().filter_map(|grant| self.extension_at(grant));
        let running = running.chain(extended).min();
        if self.grants.len() >= self.policy.capacity.max(1) || self.waiting().next().is_none() {
            return running;
        }
        // A process whose client holds a grant waits for the end of that grant.
        let holds = |id: &ClientId| self.grants.iter().any(|g| g.client == *id);
        let can_be_granted = |id: &ClientId| self.client_is_grantable(*id) && !holds(id);
        let limited = self.clients.iter().filter(|(id, c)| c.is_best_effort() && can_be_granted(id));
        let ready = limited.filter_map(|(_, client)| client.peek_ready_at(self.now)).min();
        let lingers = self.clients.values().filter_map(|client| client.lingers_until).min();
        // A lingering client delays one that is ready. Without a lingering client, a ready one has been granted already.
        let ready = ready.map(|at| if at <= self.now { lingers.unwrap_or(at) } else { at });
        [running, ready].into_iter().flatten().min()
    }

    /// Ends the grant at `index` if no process is left under it; charges it.
    pub(super) fn finish_if_empty(&mut self, index: usize, how: GrantEnd) -> bool {
        if !self.grants[index].members.is_empty() {
            return false;
        }
        let now = self.now;
        let mut grant = self.grants.swap_remove(index);
        grant.set_running(false, now);
        // A client that returns it while grants are withheld had no work held back: its report covers all work that ran.
        if let Some(since) = self.withheld_since.filter(|_| how != GrantEnd::Returned) {
            grant.add_withheld(since, now);
        }
        let (held, charged) = (grant.held(), grant.charge());
        let disposal = self.shared.saturating_sub(grant.shared_start).min(held);
        if let Some(client) = self.clients.get_mut(&grant.client) {
            let before = client.level;
            client.charge(grant.start, grant.ended.max(grant.start), charged, disposal);
            // Each extension counts like choosing the client again. A client that returns from a pause is therefore not
            // ahead by the time that this one used alone.
            if grant.uncontended_until > grant.start {
                let alone = Share::ratio(grant.uncontended_until - grant.start, held);
                let gained = client.level.saturating_sub(before);
                self.level = self.level.max(before.saturating_add(alone.of(gained)));
            }
        }
        let overrun = grant.ended.saturating_sub(grant.deadline);
        self.actions.push(Action::Ended {
            client: grant.client,
            held_ns: held,
            charged_ns: charged,
            overrun_ns: overrun,
            how,
        });
        self.mark_idle_if_quiet(grant.client, now);
        true
    }

    /// Revokes every grant of a client's processes.
    pub(super) fn revoke_all(&mut self, client: ClientId, now: u64) {
        while let Some(index) = self.grants.iter().position(|g| g.client == client) {
            self.revoke_members(index, now, |_| true, GrantEnd::Withdrawn);
        }
        for (id, process) in &mut self.processes {
            if process.client == client && std::mem::take(&mut process.unlimited) {
                self.actions.push(Action::Revoke { process: *id, reason: GrantEnd::Withdrawn });
            }
        }
        self.mark_idle_if_quiet(client, now);
    }

    /// Keeps the GPU free for the client's next request until `until`, if the client would be chosen.
    pub(super) fn linger(&mut self, client: ClientId, until: u64) {
        let waits = self.is_waiting(client);
        if let Some(client) = self.clients.get_mut(&client) {
            client.lingers_until = (until > self.now && !waits).then_some(until);
        }
    }

    pub(super) fn mark_idle_if_quiet(&mut self, client: ClientId, now: u64) {
        let quiet = !self.is_waiting(client) && !self.grants.iter().any(|g| g.client == client);
        if quiet && let Some(client) = self.clients.get_mut(&client) {
            client.becomes_idle(now);
        }
    }

    fn is_waiting(&self, client: ClientId) -> bool {
        self.processes.values().any(|p| p.client == client && p.waiting.is_some())
    }

    fn revoke_members(
        &mut self,
        index: usize,
        at: u64,
        which: impl Fn(&Member) -> bool,
        why: GrantEnd,
    ) -> bool {
        let members: Vec<Member> = self.grants[index].members.iter().copied().filter(|m| which(m)).collect();
        for member in members {
            self.grants[index].leave(member.process, at, None);
            self.actions.push(Action::Revoke { process: member.process, reason: why });
        }
        self.finish_if_empty(index, why)
    }

    fn end_by_time(&mut self, now: u64) {
        let mut index = 0;
        while index < self.grants.len() {
            let deadline = self.grants[index].deadline;
            if now >= deadline {
                for member in self.grants[index].members.iter().filter(|m| m.ends_by_timer()) {
                    if let Some(process) = self.processes.get_mut(&member.process) {
                        process.timer_ended = Some(deadline);
                    }
                }
                let client = self.grants[index].client;
                if self.revoke_members(index, deadline, |m| m.ends_by_timer(), GrantEnd::Expired) {
                    self.linger(client, deadline.saturating_add(self.policy.timer_linger_ns));
                    continue;
                }
                self.end_quantum(index, now);
            }
            let suspended = self.withheld_since.is_some() && self.grants[index].can_be_suspended();
            let overdue = self.grants[index].overdue_at(self.policy.return_timeout_ns);
            if !suspended
                && now >= overdue
                && self.revoke_members(index, now, |_| true, GrantEnd::NotReturned)
            {
                continue;
            }
            index += 1;
        }
        for client in self.clients.values_mut() {
            if client.lingers_until.is_some_and(|until| now >= until) {
                client.lingers_until = None;
            }
        }
    }

    fn grant_unlimited(&mut self, now: u64) {
        for (id, process) in &mut self.processes {
            let Some(client) = self.clients.get(&process.client) else { continue };
            if client.spec.class != Class::LatencyCritical {
                continue;
            }
            if let Some(waiting) = process.waiting.take() {
                process.unlimited = true;
                self.epoch += 1;
                self.actions.push(Action::Grant {
                    process: *id,
                    client: process.client,
                    epoch: self.epoch,
                    deadline: Deadline::Unlimited,
                    waited_ns: now.saturating_sub(waiting.since),
                });
            }
        }
    }

    /// Gives the remaining time of a running grant to processes of its client that have requested one since.
    fn join_running(&mut self, now: u64) {
        for index in 0..self.grants.len() {
            let left = self.grants[index].deadline.saturating_sub(now);
            let least = self.policy.join_min_ns.max(1);
            self.admit(index, now, |kind, burst| match kind {
                ReturnKind::Returns | ReturnKind::HardwareScheduled => left >= least,
                ReturnKind::ByTimer => left > 0 && burst <= left,
            });
        }
    }

    /// Admits the waiting processes of the grant's client for which `enough(kind, burst)` holds.
    fn admit(&mut self, index: usize, now: u64, enough: impl Fn(ReturnKind, u64) -> bool) {
        let withheld = self.withheld_since.is_some();
        let may = |kind: ReturnKind| !withheld || kind == ReturnKind::HardwareScheduled;
        let grant = &mut self.grants[index];
        let client = grant.client;
        for (id, process) in self.processes.iter_mut().filter(|(_, p)| p.client == client) {
            let enough =
                |waiting: &super::Waiting| may(process.kind) && enough(process.kind, waiting.burst_ns);
            let Some(waiting) = process.waiting.filter(enough) else {
                continue;
            };
            process.waiting = None;
            if !grant.members.iter().any(|m| m.process == *id) {
                let gated = process.gated && process.kind == ReturnKind::Returns;
                grant.join(Member { process: *id, joined: now, kind: process.kind, stopping: false, gated });
            }
            self.actions.push(Action::Grant {
                process: *id,
                client: grant.client,
                epoch: grant.epoch,
                deadline: Deadline::At(grant.deadline),
                waited_ns: now.saturating_sub(waiting.since),
            });
        }
    }

    /// The client to grant next; `None` if no client may run, or if the best one is expected to request again in a
    /// moment. A `holder` counts as waiting since now.
    pub(super) fn choose(&mut self, now: u64, holder: Option<ClientId>) -> Option<ClientId> {
        let withheld = self.withheld_since.is_some();
        let mut candidates: Vec<Candidate> = Vec::with_capacity(self.clients.len());
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            let holds = holder == Some(id);
            let since = if holds { Some(now) } else { self.waiting_since(id) };
            let running = !holds && self.grants.iter().any(|g| g.client == id);
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let since = since.or(client.lingers_until.filter(|_| !withheld));
            let Some(waiting_since) = since.filter(|_| client.is_best_effort() && !running) else { continue };
            client.count_activity(now);
            if client.ready_at(now) != Some(now) {
                continue;
            }
            client.catch_up(self.level);
            let (entitled, had) = client.entitlement(now);
            candidates.push(Candidate { client: id, entitled, had, level: client.level, waiting_since });
        }
        let least = candidates.iter().map(|c| c.level).min()?;
        let best = candidates.into_iter().min_by(Candidate::precedence)?;
        let lingers = self.clients.get(&best.client).is_some_and(|c| c.lingers_until.is_some());
        if lingers {
            return None;
        }
        self.level = self.level.max(least);
        Some(best.client)
    }

    fn waiting_since(&self, client: ClientId) -> Option<u64> {
        self.processes
            .values()
            .filter(|p| p.client == client && self.may_be_granted(p.kind))
            .filter_map(|p| p.waiting.map(|w| w.since))
            .min()
    }

    fn grant(&mut self, id: ClientId, now: u64) {
        let burst = self.processes.values().filter(|p| p.client == id).map(|p| p.burst_ns).max().unwrap_or(0);
        let mut candidates = self.processes.values().filter(|p| p.client == id && self.is_grantable(p));
        let hardware_scheduled = candidates.all(|p| p.kind == ReturnKind::HardwareScheduled);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let quota = if hardware_scheduled {
            self.policy.quantum_ns(client.spec.limit)
        } else {
            client.quota.next(&self.policy.quota, burst, client.spec.limit)
        };
        self.epoch += 1;
        let mut grant = Grant::new(id, self.epoch, now, now.saturating_add(quota), self.shared);
        grant.set_running(client.running, now);
        self.grants.push(grant);
        let index = self.grants.len() - 1;
        self.admit(index, now, |_, _| true);
    }

    /// When a grant is to be extended next: `None` if a process waits, its deadline has passed, grants are withheld, or
    /// it may not be extended.
    fn extension_at(&self, grant: &Grant) -> Option<u64> {
        let unlimited = self.clients.get(&grant.client).is_some_and(|c| c.spec.limit == Share::ONE);
        let returns = grant.members.iter().all(|m| m.kind == ReturnKind::Returns);
        let total = grant.deadline.saturating_add(self.policy.quota.base_ns).saturating_sub(grant.start);
        let allowed = self.policy.extend_ahead_ns > 0
            && unlimited
            && returns
            && total <= self.policy.longest_extended_ns;
        let wanted = self.waiting().next().is_some() || self.is_withheld();
        let free = allowed && self.now < grant.deadline && !wanted;
        // A base quota shorter than the time ahead would be added again at once.
        let ahead = self.policy.extend_ahead_ns.min(self.policy.quota.base_ns / 2);
        free.then(|| grant.deadline.saturating_sub(ahead))
    }

    /// Moves the deadlines of grants that are about to end and for which no other client waits.
    fn extend(&mut self, now: u64) {
        let due = |grant: &Grant| self.extension_at(grant).is_some_and(|at| at <= now);
        let due: Vec<usize> = (0..self.grants.len()).filter(|index| due(&self.grants[*index])).collect();
        for index in due {
            let grant = &mut self.grants[index];
            grant.deadline = grant.deadline.saturating_add(self.policy.quota.base_ns);
            grant.uncontended_until = now;
            let (epoch, deadline) = (grant.epoch, grant.deadline);
            self.actions.extend(grant.members.iter().map(|m| Action::Extend {
                process: m.process,
                epoch,
                deadline,
            }));
        }
    }

    fn report_contention(&mut self) {
        for index in 0..self.grants.len() {
            let holder = self.grants[index].client;
            let others = |(id, _): &(&ProcessId, &super::Process)| {
                !self.grants.iter().any(|g| g.client == self.processes[*id].client)
            };
            let waits =
                self.processes.iter().filter(|(_, p)| p.waiting.is_some()).any(|entry| others(&entry));
            let grant = &mut self.grants[index];
            if grant.contended != waits {
                grant.contended = waits;
                self.actions.push(Action::Contended { client: holder, contended: waits });
            }
        }
    }
}
