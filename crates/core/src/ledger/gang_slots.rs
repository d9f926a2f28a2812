//! Gangs: which client the slots of [`crate::gangs`] put before the others, and when a grant ends for a slot.

use super::client::Client;
use super::ready_queue::Key;
use super::virtual_time::{ActiveDemand, virtual_ns};
use super::{Grant, TokenLedger};
use crate::gangs::Slots;
use crate::ids::ClientId;
use crate::share::Share;

/// How long after the deadline of a grant of a gang no other client is granted: the GPU finishes what the ranks have launched, for example two
/// steps of a training. Work that is left then may be a collective whose other ranks have no grant. A longer time would delay the next gang
/// by each of these.
pub(super) const DRAIN_NS: u64 = 40_000_000;

impl TokenLedger {
    /// Changes the slots of the gangs from the next grant on.
    pub fn set_slots(&mut self, slots: Slots) {
        self.slots = slots;
        // Other clients may have windows.
        self.critical.check_at = Some(self.now);
    }

    /// The slots of the gangs.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
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

    /// The place of the client that is granted at `now` if nothing changes until then. `holder`: the place of a client that holds a grant
    /// and would continue. The order with slots:
    ///
    /// 1. a client that is [neglected](Self::is_neglected), so that slots change no client's share;
    /// 2. a gang in its slot;
    /// 3. a client of this GPU alone;
    /// 4. a gang outside of its slot.
    pub(super) fn first_at(&self, now: u64, holder: Option<Key>) -> Option<Key> {
        if self.slots.is_empty() {
            return self.queue.first().into_iter().chain(holder).min();
        }
        let first = |is: &dyn Fn(&Key) -> bool| {
            self.queue.first_that(is).into_iter().chain(holder.filter(|holder| is(holder))).min()
        };
        first(&|key| self.is_neglected(key.client))
            .or_else(|| first(&|key| self.is_in_slot(key.client, now)))
            .or_else(|| first(&|key| !self.slots.contains(key.client)))
            .or_else(|| {
                let waits = |id: &ClientId| first(&|key| key.client == *id).is_some();
                let turn = self.slots.stand_in(self.slots.clients().filter(waits), now)?;
                first(&|key| key.client == turn)
            })
    }

    /// Whether a client is behind the others by more GPU time than slots cause. Between two slots or quanta of a client with share s the others
    /// get (1 - s) of a cycle, of which s are due to it: a quarter of a cycle at most. Slots alone would leave a client with a small share no
    /// time that is long enough for a grant.
    pub(super) fn is_neglected(&self, client: ClientId) -> bool {
        let Some(client) = self.clients.get(&client) else { return false };
        let bound = virtual_ns(self.slots.cycle_ns() / 2, self.demand.weight_of(client));
        self.virtual_now.saturating_sub(client.start) > bound
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
        let is_entitled = || self.is_in_slot(grant.client, now) || self.is_neglected(grant.client);
        if self.slots.is_empty() || is_entitled() || !grant.can_continue() {
            return false;
        }
        self.first_at(now, None).is_some_and(|first| self.is_in_slot(first.client, now))
    }

    /// Whether this is a grant that a gang's process has not returned at the end of the slot.
    fn is_overdue(&self, grant: &Grant) -> bool {
        grant.deadline <= self.now && self.slots.contains(grant.client) && !grant.hardware_scheduled
    }

    /// Whether the work of an overdue grant of a gang may be a collective that ends only in the next slot, so that the ledger grants other
    /// clients beside it.
    pub(super) fn is_left_over(&self, grant: &Grant) -> bool {
        self.is_overdue(grant) && grant.deadline.saturating_add(DRAIN_NS) <= self.now
    }

    /// Grants of gangs that were not returned last until the end of the next slot, once that is open. They end by the return timeout after
    /// the first deadline all the same.
    pub(super) fn continue_gangs(&mut self, now: u64) {
        for index in 0..self.grants.len() {
            let grant = &self.grants[index];
            if !self.is_overdue(grant) || self.is_suspended(grant.client) {
                continue;
            }
            let missed_at = grant.missed_at.unwrap_or(grant.deadline);
            if let Some(end) = self.slots.open_until(grant.client, now) {
                self.grants[index].missed_at = Some(missed_at);
                self.prolong(index, end);
            }
        }
    }

    /// When a grant of a gang is left over, or goes on.
    pub(super) fn next_slot(&self) -> Option<u64> {
        let of_gangs = self.grants.iter().filter(|grant| self.slots.contains(grant.client));
        let next = of_gangs.filter(|grant| !grant.hardware_scheduled).filter_map(|grant| {
            let left_over_at = grant.deadline.saturating_add(DRAIN_NS);
            let ends = [grant.deadline, left_over_at].into_iter().find(|at| *at > self.now);
            let starts = self.slots.starts_at(grant.client, self.now).filter(|_| grant.deadline <= self.now);
            ends.into_iter().chain(starts).min()
        });
        next.min()
    }

    /// The slot of the time that a grant from `now` on is for: the least time for which a process joins a grant is too short for one.
    fn slot_time(&self, now: u64) -> u64 {
        now.saturating_add(self.policy.join_min_ns)
    }
}
