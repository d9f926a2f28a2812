//! What a simulation has recorded, and the report of it.

use crate::policy_name::PolicyName;
use crate::scenario::Scenario;
use serde::Serialize;
use sluice_core::resources::ClientEntry;

/// Resolution of the shares over time.
const WINDOW_NS: u64 = 1_000_000_000;
/// How many intervals the timeline keeps. Later ones are dropped.
const INTERVALS: usize = 1 << 16;

/// A client had the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The client's number.
    pub client: usize,
    /// Beginning, nanoseconds.
    pub from_ns: u64,
    /// End, nanoseconds.
    pub to_ns: u64,
}

/// A request that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// How long it took from its arrival, nanoseconds.
    pub lasted_ns: u64,
}

/// What one client got.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClientReport {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: &'static str,
    /// GPUs on which it has a process.
    pub gpus: usize,
    /// GPU time of its work, of the whole span of these GPUs.
    pub share: f64,
    /// Requests that finished: steps of a training.
    pub requests: usize,
    /// Requests that arrived and had not finished at the end.
    pub unfinished: usize,
    /// Requests that finished in a second.
    pub requests_per_second: f64,
    /// Mean duration of a request, milliseconds.
    pub mean_ms: f64,
    /// Median duration.
    pub p50_ms: f64,
    /// 99th percentile of the duration.
    pub p99_ms: f64,
    /// Sorted durations of all finished requests, nanoseconds.
    #[serde(skip)]
    pub latencies_ns: Vec<u64>,
    /// All finished requests in their order.
    #[serde(skip)]
    pub finished: Vec<Finished>,
    /// GPU time in each second on all of its GPUs, nanoseconds.
    #[serde(skip)]
    pub per_second_ns: Vec<u64>,
}

impl ClientReport {
    /// The part of the requests that took at most so many nanoseconds; 1 without requests.
    #[must_use]
    pub fn part_within(&self, ns: u64) -> f64 {
        let within = self.latencies_ns.partition_point(|latency| *latency <= ns);
        if self.latencies_ns.is_empty() { 1.0 } else { within as f64 / self.latencies_ns.len() as f64 }
    }

    /// The smallest duration that this part of the requests does not exceed, nanoseconds; 0 without requests.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let rank = (self.latencies_ns.len() as f64 * part).ceil() as usize;
        self.latencies_ns.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Result of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The policy.
    pub policy: &'static str,
    /// Simulated time, nanoseconds.
    pub span_ns: u64,
    /// GPUs. The figures below are sums over them.
    pub gpus: usize,
    /// Events of the simulation: arrivals, ends of bursts, pauses and switches, and decisions at a time of the policy.
    pub events: u64,
    /// Changes of the context that the GPU has.
    pub switches: u64,
    /// Those of them that interrupted a burst.
    pub preemptions: u64,
    /// Time that these changes took, nanoseconds.
    pub switching_ns: u64,
    /// Time in which the GPU did nothing.
    pub idle_ns: u64,
    /// The part of it in which a burst waited.
    pub idle_while_work_waits_ns: u64,
    /// The clients.
    pub clients: Vec<ClientReport>,
    /// The first intervals in which clients had the first GPU.
    #[serde(skip)]
    pub timeline: Vec<Interval>,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(scenario: &Scenario, policy: PolicyName) -> Self {
        let seconds = usize::try_from(scenario.span_ns.div_ceil(WINDOW_NS)).unwrap_or(usize::MAX);
        let client = |client: &ClientEntry| ClientReport {
            name: client.name.clone(),
            class: client.class.name(),
            per_second_ns: vec![0; seconds],
            ..ClientReport::default()
        };
        Self {
            policy: policy.name(),
            span_ns: scenario.span_ns,
            clients: scenario.clients.iter().map(client).collect(),
            ..Self::default()
        }
    }

    /// Adds what was recorded on one GPU. `numbers`: those of its clients.
    pub(crate) fn add_gpu(&mut self, gpu: Self, numbers: &[usize]) {
        let (own, events) = (gpu.timeline, gpu.events);
        if self.timeline.is_empty() {
            let interval = |interval: Interval| Interval { client: numbers[interval.client], ..interval };
            self.timeline = own.into_iter().map(interval).collect();
        }
        self.gpus += 1;
        self.events += events;
        self.switches += gpu.switches;
        self.preemptions += gpu.preemptions;
        self.switching_ns += gpu.switching_ns;
        self.idle_ns += gpu.idle_ns;
        self.idle_while_work_waits_ns += gpu.idle_while_work_waits_ns;
        for (client, number) in gpu.clients.into_iter().zip(numbers) {
            let all = &mut self.clients[*number];
            all.gpus += 1;
            all.per_second_ns.iter_mut().zip(client.per_second_ns).for_each(|(all, ns)| *all += ns);
        }
    }

    /// A client has executed.
    pub(crate) fn ran(&mut self, client: usize, from_ns: u64, to_ns: u64) {
        let has_room = self.timeline.len() < INTERVALS;
        match self.timeline.last_mut() {
            Some(last) if last.client == client && last.to_ns == from_ns => last.to_ns = to_ns,
            _ if has_room => self.timeline.push(Interval { client, from_ns, to_ns }),
            _ => {}
        }
        let mut begin = from_ns;
        while begin < to_ns {
            let second = begin / WINDOW_NS;
            let end = to_ns.min((second + 1) * WINDOW_NS);
            self.clients[client].per_second_ns[usize::try_from(second).unwrap_or(usize::MAX)] += end - begin;
            begin = end;
        }
    }

    /// Computes what follows from the durations of a client's requests.
    pub(crate) fn finish(&mut self, client: usize, finished: Vec<Finished>, unfinished: usize) {
        let mut latencies_ns: Vec<u64> = finished.iter().map(|request| request.lasted_ns).collect();
        latencies_ns.sort_unstable();
        let (client, span_ns) = (&mut self.clients[client], self.span_ns as f64);
        let requests = latencies_ns.len();
        client.share = client.per_second_ns.iter().sum::<u64>() as f64 / span_ns / client.gpus as f64;
        (client.requests, client.unfinished) = (requests, unfinished);
        client.requests_per_second = requests as f64 * 1e9 / span_ns;
        client.mean_ms = latencies_ns.iter().sum::<u64>() as f64 / 1e6 / requests.max(1) as f64;
        (client.latencies_ns, client.finished) = (latencies_ns, finished);
        client.p50_ms = client.quantile_ns(0.5) as f64 / 1e6;
        client.p99_ms = client.quantile_ns(0.99) as f64 / 1e6;
    }
}
