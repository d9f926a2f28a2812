//! Virtual time: GPU time divided by a client's weight. The client with the smallest virtual time is granted next.
//!
//! The algorithm is start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queuing", SIGCOMM 1996). It needs no
//! length of a grant in advance, as EEVDF does: how long a client really uses the GPU is known only afterwards.
//! docs/design/ledger.md compares both.

use super::policy::{Class, ClientSpec};
use crate::share::WHOLE_PPM;

/// Weight of a client that receives nothing of the unrequested time: it still progresses.
const LEAST_WEIGHT_PPM: u64 = WHOLE_PPM as u64 / 100;

/// Virtual nanoseconds: GPU time × 10^6 / weight in parts per million.
pub(super) type VirtualNs = u64;

/// What the active clients of one level request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct LevelDemand {
    requests_ppm: u64,
    with_request: u32,
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
        level.requests_ppm += u64::from(spec.request.ppm());
        *level.count_of(spec) += 1;
    }

    /// A client that was [added](Self::add) with this specification is no longer active.
    pub(super) fn remove(&mut self, spec: &ClientSpec) {
        let level = &mut self.levels[spec.class.level()];
        level.requests_ppm = level.requests_ppm.saturating_sub(u64::from(spec.request.ppm()));
        let count = level.count_of(spec);
        *count = count.saturating_sub(1);
    }

    /// The share to which an active client is entitled, in parts per million, before limits. It is never zero.
    ///
    /// Every client is entitled to its request. Unrequested time goes to the best level that waits for grants: equally to
    /// its clients without a request; if all have one, in proportion to the requests. All others without a request have
    /// the least weight.
    pub(super) fn weight_ppm(&self, spec: &ClientSpec) -> u64 {
        let requested: u64 = self.levels.iter().map(|level| level.requests_ppm).sum();
        let unrequested = u64::from(WHOLE_PPM).saturating_sub(requested);
        let waiting_levels = &self.levels[1..];
        let best = waiting_levels.iter().position(LevelDemand::is_present).map(|index| index + 1);
        let request = u64::from(spec.request.ppm());
        let is_best = best == Some(spec.class.level());
        let level = self.levels[spec.class.level()];
        let extra = match (is_best, level.without_request) {
            (false, _) => 0,
            (true, 0) => unrequested * request / level.requests_ppm.max(1),
            (true, _) if request > 0 => 0,
            (true, sharers) => unrequested / u64::from(sharers),
        };
        let weight = request + extra;
        if request == 0 { weight.max(LEAST_WEIGHT_PPM) } else { weight }
    }
}

impl LevelDemand {
    fn count_of(&mut self, spec: &ClientSpec) -> &mut u32 {
        if spec.request.ppm() == 0 { &mut self.without_request } else { &mut self.with_request }
    }

    fn is_present(&self) -> bool {
        self.with_request + self.without_request > 0
    }
}

/// GPU time as virtual time of a client with this weight.
pub(super) fn virtual_ns(gpu_ns: u64, weight_ppm: u64) -> VirtualNs {
    let scaled = u128::from(gpu_ns) * u128::from(WHOLE_PPM) / u128::from(weight_ppm.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
