//! Gemini's token: one client holds the GPU until its grant ends by timer, whatever it executes. The next one is the client
//! that lags its request most in the last 10 s of wall time, and otherwise the one that held the GPU least.

use super::{Decision, Demand, Policy};
use sluice_core::quota::{AdaptiveQuota, QuotaPolicy};
use sluice_core::resources::ClientEntry;
use sluice_core::window::SlidingSum;

const WINDOW_NS: u64 = 10_000_000_000;
/// Lengths of grants (docs/reference/wire.md).
const QUOTA: QuotaPolicy =
    QuotaPolicy { base_ns: 250_000_000, min_ns: 100_000_000, cap_ns: WINDOW_NS, limit_period_ns: WINDOW_NS };

struct Holder {
    client: usize,
    until: u64,
    counted_to: u64,
}

pub(super) struct Gemini {
    clients: Vec<ClientEntry>,
    held: Vec<SlidingSum>,
    quotas: Vec<AdaptiveQuota>,
    /// The burst that runs, and the last complete one.
    bursts_ns: Vec<(u64, u64)>,
    holder: Option<Holder>,
}

impl Gemini {
    pub(super) fn new(clients: &[ClientEntry]) -> Self {
        let count = clients.len();
        Self {
            clients: clients.to_vec(),
            held: vec![SlidingSum::new(WINDOW_NS); count],
            quotas: vec![AdaptiveQuota::new(&QUOTA); count],
            bursts_ns: vec![(0, 0); count],
            holder: None,
        }
    }

    /// Counts the time that the holder has held the GPU. The grant ends if its time has come.
    fn count(&mut self, now: u64) {
        let Some(holder) = &mut self.holder else { return };
        self.held[holder.client].add(holder.counted_to, now, now - holder.counted_to);
        holder.counted_to = now;
        self.holder.take_if(|holder| now >= holder.until);
    }

    fn next(&self, now: u64, demands: &[Demand]) -> Option<usize> {
        let held = |client: usize| self.held[client].total(now);
        let below_limit = |client: &usize| {
            let most_ns = self.clients[*client].limit.of(WINDOW_NS);
            demands[*client].ready && (most_ns == WINDOW_NS || held(*client) < most_ns)
        };
        let candidates = (0..demands.len()).filter(below_limit);
        candidates.min_by_key(|client| {
            let missing_ns = self.clients[*client].request.of(WINDOW_NS).saturating_sub(held(*client));
            (std::cmp::Reverse(missing_ns), held(*client))
        })
    }
}

impl Policy for Gemini {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        for (burst, demand) in self.bursts_ns.iter_mut().zip(demands) {
            if !demand.started && burst.0 > 0 {
                *burst = (0, burst.0);
            }
        }
        self.count(now);
        if self.holder.is_none()
            && let Some(client) = self.next(now, demands)
        {
            let quota_ns =
                self.quotas[client].next(&QUOTA, self.bursts_ns[client].1, self.clients[client].limit);
            self.holder = Some(Holder { client, until: now + quota_ns, counted_to: now });
        }
        let client = self.holder.as_ref().map(|holder| holder.client).filter(|client| demands[*client].ready);
        // A client at its limit is looked at again as the window moves on.
        let waits = demands.iter().any(|demand| demand.ready);
        let poll = if waits { now + WINDOW_NS / 1000 } else { u64::MAX };
        Decision {
            client,
            review_at: self.holder.as_ref().map_or(poll, |holder| holder.until),
            is_held: false,
        }
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.bursts_ns[client].0 += to - from;
    }
}
