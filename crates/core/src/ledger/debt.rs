//! Debt: GPU time that a client's own long kernels took from the others, and that it repays before it runs again.

use super::TokenLedger;
use super::client::Client;
use super::virtual_time::part_ns;
use crate::ids::ClientId;
use crate::share::WHOLE_PPM;

/// GPU time owed. While another client holds a grant it is repaid at the weight of the client, as fast as the client would
/// otherwise receive the GPU; while none does, at once as fast as time passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Debt {
    /// Nanoseconds × parts per million: exact, no remainder is lost.
    pub(super) level: u128,
    pub(super) repaid_until: u64,
}

impl Debt {
    /// Adds GPU time that is owed. What was owed before has been repaid up to `now`.
    fn add(&mut self, ns: u64, now: u64) {
        self.level = self.level.saturating_add(u128::from(ns) * u128::from(WHOLE_PPM));
        self.repaid_until = now;
    }

    /// Repays for the time up to `now`.
    fn repay(&mut self, weight_ppm: u64, now: u64) {
        let elapsed = now.saturating_sub(self.repaid_until);
        self.level = self.level.saturating_sub(u128::from(elapsed) * u128::from(weight_ppm));
        self.repaid_until = self.repaid_until.max(now);
    }

    /// When it is repaid if the weight stays: at or before `now` if nothing is owed.
    fn repaid_at(&self, weight_ppm: u64) -> u64 {
        let wait = self.level.div_ceil(u128::from(weight_ppm.max(1)));
        self.repaid_until.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

impl TokenLedger {
    /// From when on a client owes nothing, if no client comes or goes until then.
    pub(super) fn repaid_at(&self, id: ClientId) -> u64 {
        let Some(client) = self.clients.get(&id).filter(|_| self.indebted.contains(&id)) else { return 0 };
        client.debt.repaid_at(self.repayment_ppm(client))
    }

    /// How fast a client repays now, in parts per million of the time.
    fn repayment_ppm(&self, client: &Client) -> u64 {
        if self.grants.is_empty() { u64::from(WHOLE_PPM) } else { self.demand.weight_of(client) }
    }

    /// Advances the virtual time of a client by GPU time that it took. Where that is more than the lag bound allows, the
    /// client owes all by which it is ahead.
    pub(super) fn advance_or_owe(&mut self, id: ClientId, gpu_ns: u64) {
        let ahead_ns = self.advance_virtual_time(id, gpu_ns);
        if ahead_ns > 0 {
            self.repay_debts();
        }
        let (now, virtual_now) = (self.now, self.virtual_now);
        let Some(client) = self.clients.get_mut(&id).filter(|_| ahead_ns > 0) else { return };
        // Its own part of the time that it took was not taken from the others.
        let own_ns = part_ns(gpu_ns, self.demand.weight_of(client));
        client.start = virtual_now;
        client.debt.add(ahead_ns.saturating_sub(own_ns), now);
        self.indebted.insert(id);
    }

    /// Repays for the time up to now. Call it before weights change, and before grants begin or end.
    pub(super) fn repay_debts(&mut self) {
        for id in &self.indebted {
            let Some(rate_ppm) = self.clients.get(id).map(|client| self.repayment_ppm(client)) else {
                continue;
            };
            if let Some(client) = self.clients.get_mut(id) {
                client.debt.repay(rate_ppm, self.now);
            }
        }
    }

    /// Ends the debts that are repaid, and those for which no other client is left. The clients compete again, and are not
    /// behind the others.
    pub(super) fn end_debts(&mut self, now: u64) {
        if self.indebted.is_empty() {
            return;
        }
        self.repay_debts();
        let competing = self.demand.best_effort_clients();
        for id in self.indebted.clone() {
            let Some(client) = self.clients.get_mut(&id) else {
                self.indebted.remove(&id);
                continue;
            };
            let alone = competing <= usize::from(client.in_demand && !client.is_critical());
            if alone || client.is_critical() || client.debt.level == 0 {
                client.debt = Debt::default();
                client.start = client.start.max(self.virtual_now);
                self.indebted.remove(&id);
            }
            self.update_place(id, now);
        }
    }
}
