//! Latencies on the report page. One thread of the client at a time writes; the manager only reads.

use super::{Ordering, ReportView, fence, read, report};
use crate::latency::{BUCKETS, Latencies, LatencyKind, bucket};

const _: () = assert!(report::STEPS + BUCKETS < report::REQUESTS);
const _: () = assert!(report::REQUESTS + BUCKETS < report::SLO_VIOLATIONS);

/// The word of the sum, which the buckets follow.
const fn first_word(kind: LatencyKind) -> usize {
    match kind {
        LatencyKind::Step => report::STEPS,
        LatencyKind::Request => report::REQUESTS,
    }
}

impl ReportView<'_> {
    /// Counts a latency, in nanoseconds.
    pub fn add_latency(&self, kind: LatencyKind, ns: u64) {
        let first = first_word(kind);
        self.0[first].fetch_add(ns, Ordering::Relaxed);
        // Last: a manager that sees the count sees the sum, too.
        self.0[first + 1 + bucket(ns)].fetch_add(1, Ordering::Release);
    }

    /// The latencies since the process attached. The sum may contain one that is not counted yet. A process can write any number.
    pub fn latencies(&self, kind: LatencyKind) -> Latencies {
        let first = first_word(kind);
        let mut latencies = Latencies::default();
        for (count, word) in latencies.counts.iter_mut().zip(&self.0[first + 1..]) {
            *count = word.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        latencies.sum_ns = self.0[first].load(Ordering::Relaxed);
        latencies
    }

    /// Requests that took longer than the client's latency goal, since the process attached.
    pub fn slo_violations(&self) -> u64 {
        read(self.0, report::SLO_VIOLATIONS)
    }

    /// Counts a request that took longer than the client's latency goal.
    pub fn count_slo_violation(&self) {
        self.0[report::SLO_VIOLATIONS].fetch_add(1, Ordering::Relaxed);
    }

    /// Steps without a latency, since the process attached.
    pub fn unobserved_steps(&self) -> u64 {
        read(self.0, report::UNOBSERVED_STEPS)
    }

    /// Counts a step without a latency.
    pub fn count_unobserved_step(&self) {
        self.0[report::UNOBSERVED_STEPS].fetch_add(1, Ordering::Relaxed);
    }
}
