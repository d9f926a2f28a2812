//! What the rules speak of: views of the ledger before and after a call, and the records of one call.

use super::super::*;
use crate::gangs::CYCLE_NS;
use crate::ledger::client::Client;
use crate::ledger::critical::Cause;
use crate::ledger::gang_slots::DRAIN_NS;
use crate::ledger::grant::Grant;
use crate::ledger::ready_queue::Place;
use crate::ledger::virtual_time::virtual_ns;
use crate::share::WHOLE_PPM;
use std::collections::BTreeMap;

/// The least virtual time of no client.
const NONE: i128 = i128::MAX;
/// GPU time by which a client is neglected by the slots of gangs.
const NEGLECTED_NS: i128 = 100_000_000;

/// Names and values of one record.
pub(super) type Fields<const N: usize> = [(&'static str, i128); N];

/// A client that is not latency-critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientView {
    start: u64,
    weight: u64,
    bound: u64,
    /// Nanoseconds × parts per million, now.
    debt: i128,
    owes: bool,
    repayment: u64,
    place: Option<Place>,
    idle_since: Option<u64>,
    charged_ns: u64,
    held_ns: u64,
    grant: Option<GrantView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantView {
    epoch: u64,
    deadline: u64,
    counted_ns: u64,
    beside: bool,
    /// A process under it is, or was, being disabled.
    stopping: bool,
}

impl ClientView {
    /// `earlier`: its grant before the call.
    fn of(
        ledger: &TokenLedger,
        id: ClientId,
        client: &Client,
        grant: Option<&Grant>,
        earlier: Option<GrantView>,
    ) -> Self {
        let weight = ledger.demand.weight_of(client);
        let repayment = if ledger.grants.is_empty() { u64::from(WHOLE_PPM) } else { weight };
        let level = i128::try_from(client.debt.level).unwrap();
        let elapsed = ledger.now.saturating_sub(client.debt.repaid_until);
        Self {
            start: client.start,
            weight,
            bound: virtual_ns(ledger.policy.lag_ns, weight),
            debt: (level - i128::from(elapsed) * i128::from(repayment)).max(0),
            owes: ledger.indebted.contains(&id),
            repayment,
            place: client.place,
            idle_since: client.idle_since,
            charged_ns: client.charged_ns,
            held_ns: client.held_ns,
            grant: grant.map(|grant| GrantView {
                epoch: grant.epoch,
                deadline: grant.deadline,
                counted_ns: grant.counted_ns,
                beside: grant.beside,
                stopping: grant.members.iter().any(|member| member.stopping)
                    || earlier.is_some_and(|earlier| earlier.epoch == grant.epoch && earlier.stopping),
            }),
        }
    }

    fn is_ready(&self) -> bool {
        matches!(self.place, Some(Place::Hardware(_) | Place::Token(_)))
    }

    fn competes(&self) -> bool {
        self.is_ready() || self.grant.is_some_and(|grant| !grant.beside && !grant.stopping)
    }

    fn counted_ns(&self) -> i128 {
        self.grant.map_or(0, |grant| i128::from(grant.counted_ns))
    }
}

/// The ledger between two calls.
#[derive(Default)]
pub(super) struct View {
    now: u64,
    clock: u64,
    clients: BTreeMap<ClientId, ClientView>,
    pub(super) delayed: BTreeMap<ClientId, bool>,
}

impl View {
    pub(super) fn of(ledger: &TokenLedger, before: &Self) -> Self {
        let best_effort = ledger.clients.iter().filter(|(_, client)| !client.is_critical());
        let view = |(id, client): (&ClientId, &Client)| {
            let grant = ledger.grants.iter().find(|grant| grant.client == *id);
            let earlier = before.clients.get(id).and_then(|client| client.grant);
            (*id, ClientView::of(ledger, *id, client, grant, earlier))
        };
        let delayed = ledger.critical.entries.iter().map(|(id, entry)| (*id, entry.delayed.is_some()));
        Self {
            now: ledger.now,
            clock: ledger.virtual_now,
            clients: best_effort.map(view).collect(),
            delayed: delayed.collect(),
        }
    }

    /// The clients of this view that were not in the one before.
    pub(super) fn added<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Fields<2>> + 'a {
        let new = |id: &ClientId| !before.clients.contains_key(id) && !before.delayed.contains_key(id);
        let new = self.clients.iter().filter(move |(id, _)| new(id));
        new.map(|(_, client)| [("clock2", i128::from(self.clock)), ("start2", i128::from(client.start))])
    }
}

/// What the test knows of the limit of one client: since its limit was set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limited {
    since: u64,
    charged_ns: u64,
    /// Charged since its last grant began, and the most of that so far.
    taken_ns: u64,
    longest_taken_ns: u64,
}

impl Limited {
    pub(super) fn new(since: u64) -> Self {
        Self { since, ..Self::default() }
    }
}

/// Charges of grants that ended in a call.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    held_ns: u64,
    charged_ns: u64,
}

/// What a call changed.
pub(super) struct Call<'a> {
    pub(super) before: &'a View,
    pub(super) after: &'a View,
    pub(super) ledger: &'a TokenLedger,
    /// The actions that it added.
    pub(super) actions: &'a [Action],
    /// See `rules.smt2`.
    pub(super) plain: bool,
}

impl Call<'_> {
    /// A record for each client that was there before and after it and is not latency-critical.
    pub(super) fn clients(&self, limited: &mut BTreeMap<ClientId, Limited>) -> Vec<Fields<31>> {
        let pairs = self
            .after
            .clients
            .iter()
            .filter_map(|(id, after)| Some((*id, self.before.clients.get(id)?, after)));
        pairs
            .map(|(id, before, after)| self.client(id, before, after, limited.entry(id).or_default()))
            .collect()
    }

    fn ended(&self, id: ClientId) -> Ended {
        let mut sum = Ended::default();
        for action in self.actions {
            if let Action::Ended { client, held_ns, charged_ns, .. } = action
                && *client == id
            {
                sum.held_ns += held_ns;
                sum.charged_ns += charged_ns;
            }
        }
        sum
    }

    fn is_granted(before: &ClientView, after: &ClientView) -> bool {
        after.grant.is_some_and(|grant| before.grant.is_none_or(|earlier| earlier.epoch != grant.epoch))
    }

    /// The least virtual time of the other clients that were ready before and still are.
    fn first_waiting(&self, id: ClientId) -> i128 {
        let both = self.after.clients.iter().filter(|(other, after)| **other != id && after.is_ready());
        let both = both.filter(|(other, _)| self.before.clients.get(other).is_some_and(ClientView::is_ready));
        both.map(|(_, after)| i128::from(after.start)).min().unwrap_or(NONE)
    }

    fn client(
        &self,
        id: ClientId,
        before: &ClientView,
        after: &ClientView,
        limited: &mut Limited,
    ) -> Fields<31> {
        let ended = self.ended(id);
        let charged_ns = after.charged_ns - before.charged_ns;
        // Charged for work that ran on after its grant.
        let late = i128::from(charged_ns) - i128::from(ended.charged_ns);
        let counted = after.counted_ns() - before.counted_ns();
        let held = i128::from(ended.held_ns);
        let at_disposal = i128::from(after.held_ns - before.held_ns) - late;
        let granted = Self::is_granted(before, after);
        limited.charged_ns += charged_ns;
        limited.taken_ns += charged_ns;
        limited.longest_taken_ns = limited.longest_taken_ns.max(limited.taken_ns);
        if granted {
            limited.taken_ns = 0;
        }
        let policy = &self.ledger.policy;
        let spec = &self.ledger.clients[&id].spec;
        let saved = policy.limit_depth_ns.max(spec.limit.of(policy.limit_wait_ns)) + 1;
        let paused = before.idle_since.is_some_and(|since| self.after.now - since > policy.idle_credit_ns);
        let others =
            self.ledger.demand.best_effort_clients() - usize::from(self.ledger.clients[&id].in_demand);
        let flag = i128::from;
        [
            ("plain", flag(self.plain)),
            ("clock", self.before.clock.into()),
            ("clock2", self.after.clock.into()),
            ("start", before.start.into()),
            ("start2", after.start.into()),
            ("weight_least", before.weight.min(after.weight).into()),
            ("weight_most", before.weight.max(after.weight).into()),
            ("bound_least", before.bound.min(after.bound).into()),
            ("bound_most", before.bound.max(after.bound).into()),
            ("competes", flag(before.competes())),
            ("competes2", flag(after.competes())),
            ("granted", flag(granted)),
            ("first_waiting2", self.first_waiting(id)),
            ("took_most", (held + late + counted).max(0)),
            ("took_least", (at_disposal.max(ended.charged_ns.into()) + late + counted).max(0)),
            ("held", (held + 10 * counted).max(0)),
            ("owes", flag(before.owes)),
            ("owes2", flag(after.owes)),
            ("debt", before.debt),
            ("debt2", after.debt),
            ("elapsed", (self.after.now - self.before.now).into()),
            ("repayment", before.repayment.into()),
            ("alone2", flag(others == 0)),
            ("returns", flag(before.idle_since.is_some() && after.idle_since.is_none())),
            ("paused", flag(paused)),
            ("limit", spec.limit.ppm().into()),
            ("age2", (self.after.now - limited.since).into()),
            ("charged2", limited.charged_ns.into()),
            ("saved", saved.into()),
            ("longest_taken2", limited.longest_taken_ns.into()),
            ("held_before", flag(before.grant.is_some())),
        ]
    }

    /// A record for each grant that ended in it.
    pub(super) fn ends(&self) -> impl Iterator<Item = Fields<2>> + '_ {
        self.actions.iter().filter_map(|action| match action {
            Action::Ended { held_ns, charged_ns, .. } => {
                Some([("held", i128::from(*held_ns)), ("charged", i128::from(*charged_ns))])
            }
            _ => None,
        })
    }

    /// A record for each grant after a decision.
    pub(super) fn grants(&self) -> impl Iterator<Item = Fields<18>> + '_ {
        self.ledger.grants.iter().map(|grant| self.grant(grant))
    }

    fn grant(&self, grant: &Grant) -> Fields<18> {
        let (ledger, id, flag) = (self.ledger, grant.client, i128::from);
        let now = self.after.now;
        let policy = &ledger.policy;
        let after = &self.after.clients[&id];
        let before = self.before.clients.get(&id);
        let granted = before.is_none_or(|before| Self::is_granted(before, after));
        let earlier = before.and_then(|before| before.grant);
        let extended = !granted && earlier.is_some_and(|earlier| earlier.deadline < grant.deadline);
        let at_disposal =
            i128::from(ledger.shared) - i128::from(grant.shared_start) - i128::from(grant.preempted_ns);
        let slots = &ledger.slots;
        let at = now + policy.join_min_ns;
        let slot_end = slots.open_until(id, at);
        let weight = i128::from(ledger.demand.weight_of(&ledger.clients[&id]));
        let start = before.map_or(after.start, |before| before.start);
        let behind = i128::from(self.after.clock) - i128::from(start);
        let in_slot = |other: &ClientId| slots.open_until(*other, at).is_some();
        let waits = |other: &ClientId| self.before.clients.get(other).is_some_and(ClientView::is_ready);
        let mut ready = self.after.clients.iter().filter(|(_, client)| client.is_ready()).map(|(id, _)| id);
        let slots_ns = if slots.is_empty() { 0 } else { CYCLE_NS + policy.join_min_ns };
        let longest = policy.quota.cap_ns.max(policy.quota.base_ns + policy.extend_ahead_ns).max(slots_ns);
        [
            ("plain", flag(self.plain)),
            ("clock2", self.after.clock.into()),
            ("start2", after.start.into()),
            ("now2", now.into()),
            ("deadline2", grant.deadline.into()),
            ("longest", longest.into()),
            ("return_timeout", policy.return_timeout_ns.into()),
            ("goes_on", flag(grant.missed_at.is_some())),
            ("extended", flag(extended)),
            ("uncounted2", at_disposal - i128::from(grant.counted_ns)),
            ("others_wait2", flag(!ledger.queue.is_empty())),
            ("granted", flag(granted && !grant.beside)),
            ("in_slot", flag(slot_end.is_some())),
            ("slot_end", slot_end.map_or(0, i128::from)),
            ("next_slot", slots.next_start(id, at).map_or(NONE, i128::from)),
            ("neglected", flag(behind * weight > NEGLECTED_NS * i128::from(WHOLE_PPM))),
            ("slotted_waits2", flag(ready.any(|other| *other != id && waits(other) && in_slot(other)))),
            ("extension", (policy.quota.base_ns + policy.extend_ahead_ns).into()),
        ]
    }

    /// The record of the ledger after a decision.
    pub(super) fn whole(&self) -> Fields<7> {
        let ledger = self.ledger;
        let is_left_over = |grant: &Grant| {
            grant.deadline.saturating_add(DRAIN_NS) <= self.after.now
                && ledger.slots.contains(grant.client)
                && !grant.hardware_scheduled
        };
        let excludes = |grant: &&Grant| !grant.beside && !is_left_over(grant);
        let count = |number: usize| i128::try_from(number).unwrap();
        let (mut guaranteed, mut weights) = (0, 0);
        for client in ledger.clients.values().filter(|client| client.in_demand) {
            let own = i128::from(client.spec.request.ppm().max(10_000));
            guaranteed += own;
            weights += if client.is_critical() { own } else { i128::from(ledger.demand.weight_of(client)) };
        }
        [
            ("gangs", i128::from(!ledger.slots.is_empty())),
            ("excluding2", count(ledger.grants.iter().filter(excludes).count())),
            ("capacity", count(ledger.policy.capacity)),
            ("ready2", count(self.after.clients.values().filter(|client| client.is_ready()).count())),
            ("lingering2", count(ledger.lingering.len())),
            ("guaranteed2", guaranteed),
            ("weights2", weights),
        ]
    }

    /// Describes each latency-critical client with processes after a decision. `delayed` tells which clients the ledger delayed when the
    /// decision before had been made.
    pub(super) fn critical(&self, delayed: &BTreeMap<ClientId, bool>) -> Vec<Fields<11>> {
        let (ledger, now, flag) = (self.ledger, self.after.now, i128::from);
        let lags = self.another_lags();
        let mut records = Vec::new();
        for (id, entry) in &ledger.critical.entries {
            let client = &ledger.clients[id];
            if client.processes.is_empty() {
                continue;
            }
            let waiting = ledger.critical.waiting.keys().filter(|process| client.processes.contains(process));
            records.push([
                ("delayed", flag(delayed.get(id).copied().unwrap_or(false))),
                ("delayed2", flag(entry.delayed.is_some())),
                ("by_limit2", flag(entry.delayed == Some(Cause::Limit))),
                ("waiting2", i128::try_from(waiting.count()).unwrap()),
                ("limit_overdrawn2", flag(client.limit.is_overdrawn(now))),
                ("request_overdrawn2", flag(entry.request.is_overdrawn(now))),
                ("limit_left2", client.limit.left_ns(now).into()),
                ("request_left2", entry.request.left_ns(now).into()),
                ("request", client.spec.request.ppm().into()),
                ("another_lags2", flag(lags)),
                ("in_gang", flag(ledger.slots.is_critical(*id))),
            ]);
        }
        records
    }

    /// Whether a client that competes is behind its request by more than the bound, and its limit would allow it to run for as long.
    fn another_lags(&self) -> bool {
        let (ledger, now) = (self.ledger, self.after.now);
        let bound = ledger.policy.critical_lag_ns;
        let competes = |client: &Client| !client.is_critical() && client.idle_since.is_none();
        ledger.clients.iter().filter(|(_, client)| competes(client)).any(|(id, client)| {
            let running = ledger.running_ns(*id, now);
            client.limit.left_ns(now).saturating_sub(running) > bound
                && client.lag.exceeds(&client.spec, running, bound, now)
        })
    }
}
