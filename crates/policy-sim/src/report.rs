//! What a simulation has recorded, and the report of it.

use crate::policy_name::PolicyName;
use crate::scenario::Scenario;
use serde::Serialize;

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

/// What one client got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientReport {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: &'static str,
    /// GPU time of its work, of the whole span.
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
    /// GPU time in each second, nanoseconds.
    #[serde(skip)]
    pub per_second_ns: Vec<u64>,
}

impl ClientReport {
    /// A duration that this part of the requests does not exceed, nanoseconds.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> u64 {
        quantile(&self.latencies_ns, part)
    }
}

/// Result of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The policy.
    pub policy: &'static str,
    /// Simulated time, nanoseconds.
    pub span_ns: u64,
    /// Events of the simulation: arrivals, ends of bursts, pauses and switches, and decisions at a time of the policy.
    pub events: u64,
    /// Changes of the context that the GPU has.
    pub switches: u64,
    /// Time that these changes took, nanoseconds.
    pub switching_ns: u64,
    /// Time in which the GPU did nothing.
    pub idle_ns: u64,
    /// The part of it in which a burst waited.
    pub idle_while_work_waits_ns: u64,
    /// The clients.
    pub clients: Vec<ClientReport>,
    /// The first intervals in which clients had the GPU.
    #[serde(skip)]
    pub timeline: Vec<Interval>,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) events: u64,
    pub(crate) switches: u64,
    pub(crate) switching_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) idle_while_work_waits_ns: u64,
    per_second: Vec<Vec<u64>>,
    timeline: Vec<Interval>,
}

impl Record {
    pub(crate) fn new(clients: usize) -> Self {
        Self {
            events: 0,
            switches: 0,
            switching_ns: 0,
            idle_ns: 0,
            idle_while_work_waits_ns: 0,
            per_second: vec![Vec::new(); clients],
            timeline: Vec::new(),
        }
    }

    pub(crate) fn ran(&mut self, client: usize, from_ns: u64, to_ns: u64) {
        let has_room = self.timeline.len() < INTERVALS;
        match self.timeline.last_mut() {
            Some(last) if last.client == client && last.to_ns == from_ns => last.to_ns = to_ns,
            _ if has_room => self.timeline.push(Interval { client, from_ns, to_ns }),
            _ => {}
        }
        let seconds = &mut self.per_second[client];
        let mut begin = from_ns;
        while begin < to_ns {
            let second = begin / WINDOW_NS;
            let end = to_ns.min((second + 1) * WINDOW_NS);
            let index = usize::try_from(second).unwrap_or(usize::MAX);
            if seconds.len() <= index {
                seconds.resize(index + 1, 0);
            }
            seconds[index] += end - begin;
            begin = end;
        }
    }

    pub(crate) fn report(
        self,
        scenario: &Scenario,
        policy: PolicyName,
        latencies: Vec<Vec<u64>>,
        unfinished: &[usize],
    ) -> Report {
        let span_ns = scenario.span_ns;
        let results = latencies.into_iter().zip(unfinished).zip(self.per_second);
        let clients = scenario.clients.iter().zip(results).map(
            |(client, ((mut latencies, unfinished), mut per_second))| {
                latencies.sort_unstable();
                per_second.resize(usize::try_from(span_ns.div_ceil(WINDOW_NS)).unwrap_or(0), 0);
                let requests = latencies.len();
                let ms = |ns: u64| ns as f64 / 1e6;
                ClientReport {
                    name: client.name.clone(),
                    class: client.class.name(),
                    share: per_second.iter().sum::<u64>() as f64 / span_ns as f64,
                    requests,
                    unfinished: *unfinished,
                    requests_per_second: requests as f64 * 1e9 / span_ns as f64,
                    mean_ms: ms(latencies.iter().sum::<u64>()) / requests.max(1) as f64,
                    p50_ms: ms(quantile(&latencies, 0.5)),
                    p99_ms: ms(quantile(&latencies, 0.99)),
                    latencies_ns: latencies,
                    per_second_ns: per_second,
                }
            },
        );
        Report {
            policy: policy.name(),
            span_ns,
            events: self.events,
            switches: self.switches,
            switching_ns: self.switching_ns,
            idle_ns: self.idle_ns,
            idle_while_work_waits_ns: self.idle_while_work_waits_ns,
            clients: clients.collect(),
            timeline: self.timeline,
        }
    }
}

/// The smallest value that `part` of the sorted ones do not exceed; 0 of none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
fn quantile(sorted: &[u64], part: f64) -> u64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}
