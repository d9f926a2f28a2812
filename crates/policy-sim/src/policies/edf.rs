//! Earliest deadline first, preemptive: the deadline of a request is its arrival plus the client's `slo`.

use super::{Decision, Demand, Policy};
use sluice_core::resources::ClientEntry;

/// Relative deadline of a client without an `slo`.
const DEFAULT_NS: u64 = 1_000_000_000;

pub(super) struct EarliestDeadline {
    relative_ns: Vec<u64>,
}

impl EarliestDeadline {
    pub(super) fn new(clients: &[ClientEntry]) -> Self {
        let relative = |client: &ClientEntry| if client.slo_ns > 0 { client.slo_ns } else { DEFAULT_NS };
        Self { relative_ns: clients.iter().map(relative).collect() }
    }
}

impl Policy for EarliestDeadline {
    fn decide(&mut self, _now: u64, demands: &[Demand]) -> Decision {
        let ready = demands.iter().enumerate().filter(|(_, demand)| demand.ready);
        let deadline =
            |client: usize, demand: &Demand| demand.arrived.saturating_add(self.relative_ns[client]);
        let first = ready.min_by_key(|(client, demand)| deadline(*client, demand));
        Decision::until_event(first.map(|(client, _)| client))
    }

    fn ran(&mut self, _client: usize, _from: u64, _to: u64) {}
}
