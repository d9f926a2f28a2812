//! Time slicing: every client with work takes its turn, whatever its class. Only the length of the slices differs.

use super::runlist::Runlist;
use super::{Decision, Demand, Policy};
use sluice_core::resources::ClientEntry;

/// Slice of the best class where slices are exponential. Each worse class has a tenth of it.
const LONGEST_NS: u64 = 10_000_000_000;

pub(super) struct Slices(Runlist);

impl Slices {
    /// The driver's slice for all.
    pub(super) fn equal(clients: &[ClientEntry], slice_ns: u64) -> Self {
        Self(Runlist::new(vec![slice_ns; clients.len()]))
    }

    /// 10 s, 1 s, 100 ms and 10 ms.
    pub(super) fn exponential(clients: &[ClientEntry]) -> Self {
        let slice =
            |client: &ClientEntry| LONGEST_NS / 10u64.pow(u32::try_from(client.class.level()).unwrap_or(0));
        Self(Runlist::new(clients.iter().map(slice).collect()))
    }
}

impl Policy for Slices {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        self.0.choose(now, |client| demands[client].ready)
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.0.ran(client, to - from);
    }
}
