//! Virtual time: GPU time divided by a client's weight. The client with the smallest virtual time is granted next.
//!
//! The algorithm is start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queuing", SIGCOMM 1996). It needs no
//! length of a grant in advance, as EEVDF does: how long a client really uses the GPU is known only afterwards.
//! docs/design/ledger.md compares both.

use super::client::Client;
use super::policy::ClientSpec;
use crate::share::WHOLE_PPM;
use sluice_units::Class;

/// The least weight: a client that receives nothing of the unrequested time still progresses, and virtual time advances at
/// most a hundred times as fast as real time.
const LEAST_WEIGHT_PPM: u64 = WHOLE_PPM as u64 / 100;

/// Virtual nanoseconds: GPU time × 10^6 / weight in parts per million.
pub(super) type VirtualNs = u64;

/// What the active clients of one level request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct LevelDemand {
    clients: usize,
    requests_ppm: u64,
    /// Their requests, or the least weight where a request is smaller.
    guaranteed_ppm: u64,
    /// What their limits allow beyond that.
    headroom_ppm: u64,
    without_request: u32,
}

/// What the active clients request, by level. The weight of each client follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ActiveDemand {
    levels: [LevelDemand; Class::ALL.len()],
}

impl ActiveDemand {
    /// A client becomes active.
    pub(super) fn add(&mut self, spec: &ClientSpec) {
        let level = &mut self.levels[spec.class.level()];
        level.clients += 1;
        level.requests_ppm += u64::from(spec.request.ppm());
        level.guaranteed_ppm += guaranteed_ppm(spec);
        level.headroom_ppm += headroom_ppm(spec);
        level.without_request += u32::from(spec.request.ppm() == 0);
    }

    /// A client that was [added](Self::add) with this specification is no longer active.
    pub(super) fn remove(&mut self, spec: &ClientSpec) {
        let level = &mut self.levels[spec.class.level()];
        level.clients = level.clients.saturating_sub(1);
        level.requests_ppm = level.requests_ppm.saturating_sub(u64::from(spec.request.ppm()));
        level.guaranteed_ppm = level.guaranteed_ppm.saturating_sub(guaranteed_ppm(spec));
        level.headroom_ppm = level.headroom_ppm.saturating_sub(headroom_ppm(spec));
        level.without_request = level.without_request.saturating_sub(u32::from(spec.request.ppm() == 0));
    }

    /// How many of them are not latency-critical.
    pub(super) fn best_effort_clients(&self) -> usize {
        self.levels.iter().skip(1).map(|level| level.clients).sum()
    }

    /// The share to which an active client is entitled, in parts per million. It is never zero.
    ///
    /// Every client is entitled to its request, and one with a smaller request to the least weight. What is left goes to the
    /// levels in their order, to each as much as the limits of its clients allow. Inside a level it goes equally to the
    /// clients without a request; if all have one, in proportion to the requests. So the weights add up to at most 1 if what
    /// is guaranteed does.
    pub(super) fn weight_ppm(&self, spec: &ClientSpec) -> u64 {
        let guaranteed: u64 = self.levels.iter().map(|level| level.guaranteed_ppm).sum();
        let (own, better) = (spec.class.level(), 1..spec.class.level());
        let taken: u64 = better.map(|level| self.levels[level].headroom_ppm).sum();
        let left = u64::from(WHOLE_PPM).saturating_sub(guaranteed).saturating_sub(taken);
        let request = u64::from(spec.request.ppm());
        let level = self.levels[own];
        let extra = match level.without_request {
            _ if level.headroom_ppm <= left => headroom_ppm(spec),
            0 => left * request / level.requests_ppm.max(1),
            _ if request > 0 => 0,
            sharers => left / u64::from(sharers),
        };
        guaranteed_ppm(spec) + extra
    }
}

impl ActiveDemand {
    /// The weight that a client has while it is active, whether it is now or not.
    pub(super) fn weight_of(&self, client: &Client) -> u64 {
        if client.in_demand || client.is_critical() {
            return self.weight_ppm(&client.spec);
        }
        let mut with_it = self.clone();
        with_it.add(&client.spec);
        with_it.weight_ppm(&client.spec)
    }
}

/// The weight that a client has without unrequested time, in parts per million.
fn guaranteed_ppm(spec: &ClientSpec) -> u64 {
    u64::from(spec.request.ppm()).max(LEAST_WEIGHT_PPM)
}

/// What a client's limit allows beyond that, in parts per million.
fn headroom_ppm(spec: &ClientSpec) -> u64 {
    u64::from(spec.limit.ppm()).saturating_sub(guaranteed_ppm(spec))
}

/// GPU time as virtual time of a client with this weight.
pub(super) fn virtual_ns(gpu_ns: u64, weight_ppm: u64) -> VirtualNs {
    let scaled = u128::from(gpu_ns) * u128::from(WHOLE_PPM) / u128::from(weight_ppm.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The part of a time that is due to a client with this weight. Of virtual time: the GPU time that it stands for.
pub(super) fn part_ns(ns: u64, weight_ppm: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(weight_ppm) / u128::from(WHOLE_PPM)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
