//! Xen's credit scheduler: each accounting period gives credits by weight, running uses them. Clients with credits come
//! before those without, and one that wakes with credits before both.

use super::{Decision, Demand, Policy, weights};
use sluice_core::resources::ClientEntry;

/// Accounting period, and the time slice.
const PERIOD_NS: u64 = 30_000_000;
/// A client that runs loses its boost at the next tick.
const TICK_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Boost,
    Under,
    Over,
}

pub(super) struct Credit {
    weights: Vec<u64>,
    /// GPU time that each client may use, nanoseconds.
    credits: Vec<i64>,
    boosted: Vec<bool>,
    was_ready: Vec<bool>,
    /// Worked since the last accounting.
    active: Vec<bool>,
    accounted_at: u64,
    running: Option<usize>,
    used_ns: u64,
}

impl Credit {
    pub(super) fn new(clients: &[ClientEntry]) -> Self {
        let count = clients.len();
        Self {
            weights: weights(clients),
            credits: vec![0; count],
            boosted: vec![false; count],
            was_ready: vec![false; count],
            active: vec![false; count],
            accounted_at: 0,
            running: None,
            used_ns: 0,
        }
    }

    fn level(&self, client: usize) -> Level {
        match (self.boosted[client], self.credits[client] >= 0) {
            (true, _) => Level::Boost,
            (_, true) => Level::Under,
            _ => Level::Over,
        }
    }

    /// Gives the credits of the periods that have passed.
    fn account(&mut self, now: u64) {
        let periods = (now - self.accounted_at) / PERIOD_NS;
        if periods == 0 {
            return;
        }
        self.accounted_at += periods * PERIOD_NS;
        let sum: u64 = self
            .weights
            .iter()
            .zip(&self.active)
            .filter(|(_, active)| **active)
            .map(|(weight, _)| weight)
            .sum();
        let most = i64::try_from(PERIOD_NS).unwrap_or(i64::MAX);
        for (client, credits) in
            self.credits.iter_mut().enumerate().filter(|(client, _)| self.active[*client])
        {
            let earned = periods * PERIOD_NS * self.weights[client] / sum.max(1);
            *credits = credits.saturating_add(i64::try_from(earned).unwrap_or(most)).clamp(-most, most);
        }
        self.active.clone_from(&self.was_ready);
    }
}

impl Policy for Credit {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        for (client, demand) in demands.iter().enumerate() {
            if demand.ready && !self.was_ready[client] {
                self.boosted[client] = self.credits[client] >= 0;
            }
            self.was_ready[client] = demand.ready;
            self.active[client] |= demand.ready;
        }
        self.account(now);
        let count = demands.len();
        let current = self.running.filter(|client| demands[*client].ready);
        let from = self.running.map_or(0, |client| client + 1);
        let order = (from..from + count).map(|n| n % count).filter(|client| demands[*client].ready);
        let next = order.min_by_key(|client| self.level(*client));
        let keeps = |current: usize| {
            let better = next.is_some_and(|next| self.level(next) < self.level(current));
            self.used_ns < PERIOD_NS && !better
        };
        let client = current.filter(|current| keeps(*current)).or(next);
        if client != current {
            (self.running, self.used_ns) = (client, 0);
        } else if self.used_ns >= PERIOD_NS {
            self.used_ns = 0;
        }
        let tick = (now / TICK_NS + 1) * TICK_NS;
        let review_at = tick.min(now.saturating_add(PERIOD_NS - self.used_ns));
        let review_at = if client.is_some() { review_at } else { u64::MAX };
        Decision { client, review_at, is_held: false }
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.used_ns += to - from;
        self.credits[client] =
            self.credits[client].saturating_sub(i64::try_from(to - from).unwrap_or(i64::MAX));
        if from / TICK_NS != to / TICK_NS {
            self.boosted[client] = false;
        }
    }
}
