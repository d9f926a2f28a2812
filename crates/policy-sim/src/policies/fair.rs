//! Virtual run time as in Linux' CFS: the client with the least GPU time by weight runs. A client that wakes preempts one
//! that is ahead of it by more than a granularity.

use super::{Decision, Demand, Policy, weights};
use sluice_core::resources::ClientEntry;

/// A client that wakes is behind the others by at most this much of GPU time of weight 1 (CFS: half of its latency).
const SLEEPER_CREDIT_NS: u64 = 6_000_000;
const WHOLE: u64 = 1_000_000;

pub(super) struct Fair {
    weights: Vec<u64>,
    /// GPU time divided by weight.
    virtual_ns: Vec<u64>,
    was_ready: Vec<bool>,
    granularity_ns: u64,
    running: Option<usize>,
    /// What the running one has used since it was chosen.
    used_ns: u64,
}

impl Fair {
    pub(super) fn new(clients: &[ClientEntry], granularity_ns: u64) -> Self {
        let count = clients.len();
        Self {
            weights: weights(clients),
            virtual_ns: vec![0; count],
            was_ready: vec![false; count],
            granularity_ns,
            running: None,
            used_ns: 0,
        }
    }
}

impl Policy for Fair {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        let active = |client: &usize| demands[*client].ready && self.was_ready[*client];
        let least = (0..demands.len()).filter(active).map(|client| self.virtual_ns[client]).min();
        let mut woke = false;
        for (client, demand) in demands.iter().enumerate() {
            if demand.ready && !self.was_ready[client] {
                let earliest = least.unwrap_or(0).saturating_sub(SLEEPER_CREDIT_NS);
                self.virtual_ns[client] = self.virtual_ns[client].max(earliest);
                woke = true;
            }
            self.was_ready[client] = demand.ready;
        }
        let ready = || (0..demands.len()).filter(|client| demands[*client].ready);
        let first = ready().min_by_key(|client| self.virtual_ns[*client]);
        let current = self.running.filter(|client| demands[*client].ready);
        if let (Some(first), Some(current)) = (first, current) {
            let ahead_ns = self.virtual_ns[current].saturating_sub(self.virtual_ns[first]);
            if self.used_ns < self.granularity_ns && !(woke && ahead_ns > self.granularity_ns) {
                let review_at =
                    if ready().count() > 1 { now + self.granularity_ns - self.used_ns } else { u64::MAX };
                return Decision { client: Some(current), review_at, is_held: false };
            }
        }
        (self.running, self.used_ns) = (first, 0);
        let review_at = if ready().count() > 1 { now + self.granularity_ns } else { u64::MAX };
        Decision { client: first, review_at, is_held: false }
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.used_ns += to - from;
        self.virtual_ns[client] += (to - from) * WHOLE / self.weights[client];
    }
}
