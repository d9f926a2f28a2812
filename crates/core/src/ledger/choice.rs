//! Which client is granted next, and what its virtual time is charged.

use super::client::Client;
use super::ready_queue::{Key, Place};
use super::virtual_time::{part_ns, virtual_ns};
use super::{Process, ReturnKind, TokenLedger};
use crate::ids::ClientId;
use std::ops::Bound::{Excluded, Unbounded};

/// How many clients are brought within the lag bound with each decision: few GPUs have more.
const LEADS_PER_DECISION: usize = 64;

impl TokenLedger {
    /// The client to grant next; `None` if no client may run, or if the best one is expected to request again in a
    /// moment. A `holder` counts as waiting since now.
    pub(super) fn choose(&mut self, now: u64, holder: Option<ClientId>) -> Option<ClientId> {
        self.end_limits(now);
        self.bound_leads(now);
        let holder = holder.and_then(|id| self.clients.get(&id).map(|client| (id, client)));
        let holder = holder.filter(|(id, client)| self.ready_at(*id, client, now) == Some(now));
        let holder = holder.map(|(id, client)| Key { start: client.start, since: now, client: id });
        let best = self.first_at(now, holder)?;
        let is_before = |id: &ClientId, until: u64| {
            let client = self.clients.get(id).filter(|client| self.ready_at(*id, client, now) == Some(now));
            client.is_some_and(|c| Key { start: c.start, since: until, client: *id } < best)
        };
        if !self.is_in_slot(best.client, now)
            && self.lingering.iter().any(|(id, until)| is_before(id, *until))
        {
            return None;
        }
        self.virtual_now = self.virtual_now.max(best.start);
        Some(best.client)
    }

    /// Clients whose limits allow a grant again compete from here on.
    pub(super) fn end_limits(&mut self, now: u64) {
        while let Some((at, client)) = self.queue.first_limited().filter(|(at, _)| *at <= now) {
            self.reenter(client);
            self.update_place(client, now.max(at));
        }
    }

    /// A client that waited for its limit competes again: it is behind the others by at most the lag bound.
    fn reenter(&mut self, id: ClientId) {
        let bound = self.lag_bound(id);
        if let Some(client) = self.clients.get_mut(&id) {
            client.start = client.start.max(self.virtual_now.saturating_sub(bound));
        }
    }

    /// From when on a client may be granted: `now` if it may already, `None` if never.
    fn ready_at(&self, id: ClientId, client: &Client, now: u64) -> Option<u64> {
        if client.suspended {
            return None;
        }
        client.limit.ready_at(now).map(|at| at.max(self.repaid_at(id)))
    }

    /// Brings clients that are too far ahead within the bound. They exceed it when their weights have grown since they were
    /// charged. Weights grow when a client leaves the demand: each of the others is checked once after that.
    fn bound_leads(&mut self, now: u64) {
        let count = self.unchecked_leads.min(LEADS_PER_DECISION);
        if count == 0 {
            return;
        }
        self.unchecked_leads -= count;
        let last = self.last_checked_lead;
        let following = self.clients.range((Excluded(last), Unbounded)).chain(self.clients.range(..=last));
        let ids: Vec<ClientId> = following.map(|(id, _)| *id).take(count).collect();
        self.last_checked_lead = ids.last().copied().unwrap_or(last);
        for id in ids {
            let latest = self.virtual_now.saturating_add(self.lag_bound(id));
            if self.clients.get(&id).is_some_and(|client| client.start > latest) {
                self.bound_lag(id);
                self.update_place(id, now);
            }
        }
    }

    /// Brings the virtual time of a client within the lag bound of the others'.
    pub(super) fn bound_lag(&mut self, id: ClientId) {
        let (bound, now) = (self.lag_bound(id), self.virtual_now);
        if let Some(client) = self.clients.get_mut(&id) {
            client.start = client.start.clamp(now.saturating_sub(bound), now.saturating_add(bound));
        }
    }

    /// Brings a client's place in line with its processes, limit and grants.
    pub(super) fn update_place(&mut self, id: ClientId, now: u64) {
        let place = self.place_of(id, now);
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.place == place {
            return;
        }
        if let Some(before) = std::mem::replace(&mut client.place, place) {
            self.queue.remove(id, before);
        }
        if let Some(place) = place {
            self.queue.insert(id, place);
            self.lingering.retain(|(lingers, _)| *lingers != id);
        }
    }

    fn place_of(&self, id: ClientId, now: u64) -> Option<Place> {
        let client = self.clients.get(&id).filter(|client| !client.is_critical())?;
        if self.waiting.is_empty() || self.grants.iter().any(|grant| grant.client == id) {
            return None;
        }
        let waiting = client.processes.iter().filter_map(|process| self.processes.get(process));
        let waiting = waiting.filter_map(|process: &Process| Some((process.kind, process.waiting?.since)));
        let since = waiting.clone().map(|(_, since)| since).min()?;
        let is_hardware = |(kind, _): (ReturnKind, u64)| kind == ReturnKind::HardwareScheduled;
        match self.ready_at(id, client, now) {
            Some(at) if at <= now => {
                let key = Key { start: client.start, since, client: id };
                Some(if waiting.clone().any(is_hardware) { Place::Hardware(key) } else { Place::Token(key) })
            }
            ready_at => Some(Place::Limited(ready_at.unwrap_or(u64::MAX))),
        }
    }

    /// Charges a client for a grant that lasted for the `span`: GPU time `used`, of `held` at its disposal.
    pub(super) fn charge(&mut self, id: ClientId, span: (u64, u64), used: u64, held: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.charged_ns = client.charged_ns.saturating_add(used);
        client.held_ns = client.held_ns.saturating_add(held);
        client.limit.charge(span.0, span.1, used);
        client.lag.charge(&client.spec, used.max(held), self.policy.lag_ns, self.now);
    }

    /// Advances the virtual time of a client by GPU time. It is ahead of the others by at most the lag bound. Returns the GPU
    /// time by which it would be ahead, if that is more.
    pub(super) fn advance_virtual_time(&mut self, id: ClientId, gpu_ns: u64) -> u64 {
        let latest = self.virtual_now.saturating_add(self.lag_bound(id));
        let Some(client) = self.clients.get_mut(&id) else { return 0 };
        let weight = self.demand.weight_of(client);
        let start = client.start.saturating_add(virtual_ns(gpu_ns, weight));
        client.start = start.min(latest);
        if start > latest { part_ns(start - self.virtual_now, weight) } else { 0 }
    }

    fn lag_bound(&self, id: ClientId) -> u64 {
        let weight = self.clients.get(&id).map_or(1, |client| self.demand.weight_of(client));
        virtual_ns(self.policy.lag_ns, weight)
    }

    /// A client requests the GPU from `now` on. After a long pause it is not behind the others; it is never behind or
    /// ahead by more than the lag bound.
    pub(super) fn becomes_active(&mut self, id: ClientId, now: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(idle_since) = client.idle_since.take() else { return };
        self.leaving.remove(&(idle_since.saturating_add(self.policy.idle_credit_ns), id));
        let short = now.saturating_sub(idle_since) <= self.policy.idle_credit_ns;
        client.lag.becomes_active(short, now);
        if !short {
            client.limit.was_idle(now);
        }
        self.enter_demand(id);
        // First, because the ledger compares the client with where the others are now.
        if self.queue.is_empty() {
            (0..self.grants.len()).for_each(|index| self.count_so_far(index));
        }
        let bound = self.lag_bound(id);
        let virtual_now = self.virtual_now;
        let earliest = if short { virtual_now.saturating_sub(bound) } else { virtual_now };
        if let Some(client) = self.clients.get_mut(&id) {
            client.start = client.start.clamp(earliest, virtual_now.saturating_add(bound));
        }
        self.critical.check_at.get_or_insert(now);
    }

    /// Marks a client idle if it neither waits nor holds a grant.
    pub(super) fn mark_idle_if_quiet(&mut self, id: ClientId, now: u64) {
        let holds = self.grants.iter().any(|grant| grant.client == id);
        let Some(client) = self.clients.get_mut(&id).filter(|client| !client.is_critical() && !holds) else {
            return;
        };
        let waits = |process| self.waiting.contains(process);
        if client.idle_since.is_none() && !client.processes.iter().any(waits) {
            client.lag.charge(&client.spec, 0, self.policy.lag_ns, now);
            client.idle_since = Some(now);
            self.leaving.insert((now.saturating_add(self.policy.idle_credit_ns), id));
        }
    }

    /// Counts a client in the demand from here on.
    pub(super) fn enter_demand(&mut self, id: ClientId) {
        self.repay_debts();
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !std::mem::replace(&mut client.in_demand, true) {
            self.demand.add(&client.spec);
        }
        if let Some(since) = client.idle_since.filter(|_| !client.is_critical()) {
            self.leaving.insert((since.saturating_add(self.policy.idle_credit_ns), id));
        }
    }

    /// Counts a client in the demand no longer. Returns whether it was counted.
    pub(super) fn leave_demand(&mut self, id: ClientId) -> bool {
        self.repay_debts();
        let Some(client) = self.clients.get_mut(&id) else { return false };
        let counted = std::mem::take(&mut client.in_demand);
        if let Some(since) = client.idle_since {
            self.leaving.remove(&(since.saturating_add(self.policy.idle_credit_ns), id));
        }
        if counted {
            self.demand.remove(&client.spec);
            self.unchecked_leads = self.clients.len();
        }
        counted
    }

    /// Removes the clients from the demand that have been idle for longer than a short pause. A client that pauses between
    /// its bursts wants its share all the same.
    pub(super) fn end_short_pauses(&mut self, now: u64) {
        while let Some((at, client)) = self.leaving.first().copied().filter(|(at, _)| *at <= now) {
            self.leaving.remove(&(at, client));
            self.leave_demand(client);
        }
    }
}
