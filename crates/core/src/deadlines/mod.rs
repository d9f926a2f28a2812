//! Deadlines between latency-critical clients: which of them has urgent work for which other.
//!
//! Each latency-critical client has a relative deadline: its `slo`, or the usual duration of its requests. Work of a
//! client is *urgent* for every client with a later deadline. A hook that sees urgent work on its grant page postpones
//! the begin of its own bursts, so that the GPU is free when the urgent request comes. No control is made for this.
//!
//! [`DeadlineOrder::update`] derives the urgent work of each process from the reports of all latency-critical processes.
//! It trusts a report only within bounds: `Precedence` limits how long one request counts and how often a request may be
//! expected in vain, and the caller withdraws precedence from a client that has used more than its request.

mod precedence;
#[cfg(test)]
mod tests;

use crate::channel_groups::Activity;
use crate::ids::{ClientId, ProcessId};
use precedence::Precedence;
use std::collections::BTreeMap;

/// Settings; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadlinePolicy {
    /// A request is over when its process has been idle for this time: a context switch there and back. Default 380 µs.
    pub request_gap_ns: u64,
    /// Duration of a context switch, which a request may need in addition to its own time. Default 190 µs.
    pub switch_ns: u64,
    /// How long a request that is expected counts as urgent after its time, and how much earlier it may come. Default
    /// 500 µs.
    pub late_ns: u64,
    /// A request further ahead is not considered. Default 1 s.
    pub horizon_ns: u64,
    /// How long the first requests of a process may be urgent, while their usual duration is unknown. Default 5 ms.
    pub unknown_service_ns: u64,
    /// The longest usual duration of a request that is believed: work that does not end is urgent for twice as long. Default
    /// 250 ms.
    pub max_service_ns: u64,
    /// How often activity is read while urgent work runs and a launch is postponed for it. Default 100 µs.
    pub postponed_poll_ns: u64,
    /// The same while no launch is postponed. Default 1 ms.
    pub poll_ns: u64,
    /// GPU time that one request expected in vain may have cost later clients. Default 2 ms.
    pub vain_cost_ns: u64,
    /// How much of this cost a process may cause at once. It is refilled at 1 % of elapsed time. Default 10 ms.
    pub vain_burst_ns: u64,
}

impl Default for DeadlinePolicy {
    fn default() -> Self {
        Self {
            request_gap_ns: 380_000,
            switch_ns: 190_000,
            late_ns: 500_000,
            horizon_ns: 1_000_000_000,
            unknown_service_ns: 5_000_000,
            max_service_ns: 250_000_000,
            postponed_poll_ns: 100_000,
            poll_ns: 1_000_000,
            vain_cost_ns: 2_000_000,
            vain_burst_ns: 10_000_000,
        }
    }
}

/// Work of other clients with an earlier deadline. The order is that of urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrgentWork {
    /// It has been submitted and is not known to have finished.
    Now,
    /// It is expected at this time.
    At(u64),
    /// There is none.
    #[default]
    None,
}

/// What is known of one latency-critical process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The process.
    pub process: ProcessId,
    /// Its client.
    pub client: ClientId,
    /// Latency objective of the client, nanoseconds; 0: none.
    pub slo_ns: u64,
    /// Usual duration of its requests as it reports it, nanoseconds; 0: unknown.
    pub service_ns: u64,
    /// The activity that it reports.
    pub activity: Activity,
    /// When it expects its next request; 0: unknown.
    pub expected_ns: u64,
    /// A launch of it is postponed, so what it reports as activity is a wait.
    pub postponed: bool,
    /// Its client has used no more than its request and is not delayed.
    pub within_request: bool,
}

/// The deadlines of the latency-critical clients of one GPU.
#[derive(Clone, Debug)]
pub struct DeadlineOrder {
    policy: DeadlinePolicy,
    processes: BTreeMap<ProcessId, Precedence>,
    wake_at: Option<u64>,
}

impl DeadlineOrder {
    /// Without clients.
    pub fn new(policy: DeadlinePolicy) -> Self {
        Self { policy, processes: BTreeMap::new(), wake_at: None }
    }

    /// Whether a wake-up is needed when this process becomes busy: its work is urgent for another client.
    pub fn needs_wakeup(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_some_and(Precedence::is_taken)
    }

    /// When to update again, if nothing else happens.
    pub const fn wake_at(&self) -> Option<u64> {
        self.wake_at
    }

    /// The urgent work of each process at `now`, given the reports of all latency-critical processes.
    pub fn update(&mut self, now: u64, services: &[Service]) -> Vec<(ProcessId, UrgentWork)> {
        let order = in_order(services);
        let last = order.last_key_value().map(|(rank, _)| *rank);
        let is_urgent = |rank: Rank| rank.deadline_ns.is_known() && last != Some(rank);
        self.wake_at = None;
        let mut kept = BTreeMap::new();
        let mut urgent = UrgentWork::None;
        let mut result = Vec::with_capacity(services.len());
        for (rank, of_client) in &order {
            result.extend(of_client.iter().map(|service| (service.process, urgent)));
            if !is_urgent(*rank) {
                // Its budget is kept: otherwise a client could renew it by giving up its rank for a moment.
                kept.extend(of_client.iter().map(|service| {
                    let precedence = self.processes.remove(&service.process).unwrap_or_default();
                    (service.process, precedence.not_taken())
                }));
                continue;
            }
            let any_postponed = order.range(next(*rank)..).flat_map(|(_, later)| later).any(|s| s.postponed);
            for service in of_client {
                let mut precedence = self.processes.remove(&service.process).unwrap_or_default();
                let work = precedence.update(&self.policy, now, service);
                let wake_at = precedence.wake_at(&self.policy, now, work, any_postponed);
                self.wake_at = self.wake_at.into_iter().chain(wake_at).min();
                urgent = urgent.min(work);
                kept.insert(service.process, precedence);
            }
        }
        self.processes = kept;
        result
    }
}

/// A relative deadline. One that is unknown comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RelativeDeadline(u64);

impl RelativeDeadline {
    const UNKNOWN: Self = Self(u64::MAX);

    /// The objective, or else the learned duration, rounded up to a power of two: estimates of two similar clients would
    /// otherwise change their order all the time.
    fn of(service: &Service) -> Self {
        match (service.slo_ns, service.service_ns) {
            (0, 0) => Self::UNKNOWN,
            (0, learned) => learned.checked_next_power_of_two().map_or(Self::UNKNOWN, Self),
            (slo, _) => Self(slo),
        }
    }

    fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }
}

/// Place of a client in the order: a total order, so that no two clients postpone each other's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    deadline_ns: RelativeDeadline,
    client: ClientId,
}

/// The first rank behind this one.
fn next(rank: Rank) -> Rank {
    Rank { client: ClientId(rank.client.0.saturating_add(1)), ..rank }
}

/// The processes of each client, the client with the earliest deadline first. Among the processes of a client the earliest
/// learned duration counts.
fn in_order(services: &[Service]) -> BTreeMap<Rank, Vec<&Service>> {
    let mut deadlines: BTreeMap<ClientId, RelativeDeadline> = BTreeMap::new();
    for service in services {
        let deadline = deadlines.entry(service.client).or_insert(RelativeDeadline::UNKNOWN);
        *deadline = RelativeDeadline::of(service).min(*deadline);
    }
    let mut order: BTreeMap<Rank, Vec<&Service>> = BTreeMap::new();
    for service in services {
        let deadline_ns = deadlines.get(&service.client).copied().unwrap_or(RelativeDeadline::UNKNOWN);
        order.entry(Rank { deadline_ns, client: service.client }).or_default().push(service);
    }
    order
}
