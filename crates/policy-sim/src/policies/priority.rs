//! Strict priority: the best class with work has the GPU at once. Its clients take turns by time slice.

use super::runlist::Runlist;
use super::{Decision, Demand, Policy};
use sluice_core::resources::ClientEntry;

pub(super) struct StrictPriority {
    levels: Vec<usize>,
    runlist: Runlist,
}

impl StrictPriority {
    pub(super) fn new(clients: &[ClientEntry], slice_ns: u64) -> Self {
        let levels = clients.iter().map(|client| client.class.level()).collect();
        Self { levels, runlist: Runlist::new(vec![slice_ns; clients.len()]) }
    }
}

impl Policy for StrictPriority {
    fn decide(&mut self, now: u64, demands: &[Demand]) -> Decision {
        let ready = self.levels.iter().zip(demands).filter(|(_, demand)| demand.ready);
        let best = ready.map(|(level, _)| *level).min();
        self.runlist.choose(now, |client| demands[client].ready && Some(self.levels[client]) == best)
    }

    fn ran(&mut self, client: usize, from: u64, to: u64) {
        self.runlist.ran(client, to - from);
    }
}
