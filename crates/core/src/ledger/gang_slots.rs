//! Gangs: which client the slots of [`crate::gangs`] put before the others, and when a grant ends for a slot.

use super::client::Client;
use super::ready_queue::{Key, Place};
use super::virtual_time::ActiveDemand;
use super::{Grant, ReturnKind, TokenLedger};
use crate::gangs::Slots;
use crate::ids::ClientId;
use crate::share::Share;

impl TokenLedger {
    /// Changes the slots of the gangs from the next grant on.
    pub fn set_slots(&mut self, slots: Slots) {
        self.slots = slots;
        // Other clients may have windows.
        self.critical.check_at = Some(self.now);
    }

    /// A number that changes whenever [`Self::entitled_shares`] may.
    #[must_use]
    pub fn membership(&self) -> u64 {
        self.membership
    }

    /// The clients with processes. Those that are not latency-critical have the share to which each would be entitled if all of them
    /// worked, parts per million.
    #[must_use]
    pub fn entitled_shares(&self) -> Vec<(ClientId, Option<u32>)> {
        let attached = || self.clients.iter().filter(|(_, client)| !client.processes.is_empty());
        let mut demand = ActiveDemand::default();
        attached().for_each(|(_, client)| demand.add(&client.spec));
        let best_effort = |client: &Client| !client.is_critical();
        let share = |spec| u32::try_from(demand.weight_ppm(spec)).unwrap_or_else(|_| Share::ONE.ppm());
        attached().map(|(id, client)| (*id, best_effort(client).then(|| share(&client.spec)))).collect()
    }

    /// The place of the client that is granted at `now` if nothing changes until then: a gang in its slot, then the clients that are in no
    /// gang, then a gang outside of its slot. `holder`: the place of a client that holds a grant and would continue.
    pub(super) fn first_at(&self, now: u64, holder: Option<Key>) -> Option<Key> {
        let withheld = self.is_withheld();
        if self.slots.is_empty() {
            return self.queue.first(withheld).into_iter().chain(holder).min();
        }
        let in_slot = self.slots.open(self.slot_time(now));
        let waiting = |id: ClientId| match self.clients.get(&id)?.place? {
            Place::Hardware(key) => Some(key),
            Place::Token(key) => Some(key).filter(|_| !withheld),
            Place::Limited(_) => None,
        };
        let ready = |id| waiting(id).or(holder.filter(|holder| holder.client == id));
        if let Some(key) = in_slot.filter_map(ready).min() {
            return Some(key);
        }
        let is_alone = |key: &Key| !self.slots.contains(key.client);
        let all = || self.queue.ready(withheld).chain(holder);
        all().filter(is_alone).min().or_else(|| {
            let gangs = all().map(|key| key.client);
            ready(self.slots.stand_in(gangs, now)?)
        })
    }

    /// Whether a client's slot is open.
    pub(super) fn is_in_slot(&self, client: ClientId, now: u64) -> bool {
        self.slots.open_until(client, self.slot_time(now)).is_some()
    }

    /// When a grant of this length ends: at the end of the client's slot, and otherwise no later than the next slot begins.
    pub(super) fn deadline_for(&self, client: ClientId, now: u64, length_ns: u64) -> u64 {
        let deadline = now.saturating_add(length_ns);
        let at = self.slot_time(now);
        match self.slots.open_until(client, at) {
            // A client with a limit has grants for which its limit suffices.
            Some(end) if self.is_limited(client) => deadline.min(end),
            Some(end) => end,
            None => self.slots.next_start(client, at).map_or(deadline, |start| deadline.min(start)),
        }
    }

    /// Whether a gang whose slot is open waits for the holder of this grant, which can be stopped at once. It paused in its slot, for
    /// example, and works again.
    pub(super) fn is_in_the_way(&self, grant: &Grant, now: u64) -> bool {
        if self.slots.is_empty() || self.is_in_slot(grant.client, now) || !grant.can_continue() {
            return false;
        }
        self.first_at(now, None).is_some_and(|first| self.is_in_slot(first.client, now))
    }

    /// Whether this is a grant of a gang that was not returned at the end of its slot, and another gang waits in its own. The work of the
    /// first one may be a collective that ends only in its next slot, so the other one is granted beside it.
    pub(super) fn is_left_over(&self, grant: &Grant) -> bool {
        let is_over = grant.deadline <= self.now && !self.is_in_slot(grant.client, self.now);
        is_over
            && self.slots.contains(grant.client)
            && self.first_at(self.now, None).is_some_and(|first| self.is_in_slot(first.client, self.now))
    }

    /// Grants of gangs that were not returned last until the end of the next slot, once that is open.
    pub(super) fn continue_gangs(&mut self, now: u64) {
        for index in 0..self.grants.len() {
            let grant = &self.grants[index];
            let returns = grant.members.iter().all(|member| member.kind == ReturnKind::Returns);
            let end = self.slots.open_until(grant.client, now).filter(|_| returns && grant.deadline <= now);
            if let Some(end) = end {
                self.prolong(index, end);
            }
        }
    }

    /// When the next slot begins, if a grant of a gang was not returned.
    pub(super) fn next_slot(&self) -> Option<u64> {
        let is_over = |grant: &&Grant| grant.deadline <= self.now && self.slots.contains(grant.client);
        self.grants.iter().find(is_over)?;
        self.slots.next_start(ClientId(u64::MAX), self.now)
    }

    /// The slot of the time that a grant from `now` on is for: the least time for which a process joins a grant is too short for one.
    fn slot_time(&self, now: u64) -> u64 {
        now.saturating_add(self.policy.join_min_ns)
    }
}
