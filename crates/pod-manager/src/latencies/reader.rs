//! The latencies that one process reports, as far as they can be true. A process can write anything: counters that go backwards, jump, or
//! contradict each other.

use sluice_comm::latency::{BUCKETS, Latencies, range_ns};

/// Time of steps that may pass in each second, seconds: a hook measures 16 threads, and a sum may be read before its count, which then counts
/// twice.
const PARALLEL: u128 = 32;

/// The shortest step, nanoseconds: a launch and a wait take longer.
const SHORTEST_NS: u64 = 1_000;

/// The longest step, nanoseconds. One that lasts longer counts with this duration.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What was newly reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewLatencies {
    pub(crate) counts: [u64; BUCKETS],
    pub(crate) sum_ns: u64,
}

/// Reads one histogram of a report page.
#[derive(Debug, Clone)]
pub(crate) struct LatencyReader {
    seen: Latencies,
    read_at: u64,
    /// Time in which the latencies that are reported next may have passed, added up over threads, nanoseconds.
    elapsed_ns: u128,
    /// Of the latencies since the begin, or since the last reading that could not be true: the least and the largest sum that agrees with the
    /// counts, and the sum that was accepted, nanoseconds.
    least_ns: u128,
    most_ns: u128,
    accepted_ns: u128,
    /// The page's sum at that time.
    first_sum_ns: u64,
}

impl LatencyReader {
    /// A reader of a page without latencies.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            seen: Latencies::default(),
            read_at: now,
            elapsed_ns: 0,
            least_ns: 0,
            most_ns: 0,
            accepted_ns: 0,
            first_sum_ns: 0,
        }
    }

    /// How many steps can have ended since the last reading.
    pub(crate) fn most_steps(&self, now: u64) -> u64 {
        let elapsed_ns = u128::from(now.saturating_sub(self.read_at)) * PARALLEL;
        u64::try_from(elapsed_ns / u128::from(SHORTEST_NS)).unwrap_or(u64::MAX)
    }

    /// Reads the page's latencies at `now`. `None` if they cannot be true: then nothing of them counts, and later ones are compared with them.
    pub(crate) fn read(&mut self, page: Latencies, now: u64) -> Option<NewLatencies> {
        let elapsed_ns = u128::from(now.saturating_sub(self.read_at)) * PARALLEL;
        self.read_at = now;
        self.elapsed_ns = (self.elapsed_ns + elapsed_ns).min(u128::from(LONGEST_NS) * PARALLEL);
        let before = std::mem::replace(&mut self.seen, page);
        let available_ns = self.elapsed_ns;
        let counts =
            new_counts(&before, &page).filter(|counts| least_ns(counts, SHORTEST_NS) <= available_ns);
        let Some(counts) = counts else {
            (self.least_ns, self.most_ns, self.accepted_ns) = (0, 0, 0);
            self.first_sum_ns = page.sum_ns;
            return None;
        };
        self.least_ns = self.least_ns.saturating_add(least_ns(&counts, 0));
        self.most_ns = self.most_ns.saturating_add(most_ns(&counts));
        // A sum is written before its count, so it may be ahead of the counts for a moment. It is never behind them.
        let reported_ns = u128::from(page.sum_ns.wrapping_sub(self.first_sum_ns));
        let sum_ns = reported_ns.clamp(self.least_ns, self.most_ns);
        let accepted_ns = sum_ns.saturating_sub(self.accepted_ns).min(available_ns);
        self.accepted_ns += accepted_ns;
        self.elapsed_ns -= least_ns(&counts, SHORTEST_NS).max(accepted_ns);
        Some(NewLatencies { counts, sum_ns: u64::try_from(accepted_ns).unwrap_or(u64::MAX) })
    }
}

/// What was counted between two readings; `None` if a counter went backwards.
fn new_counts(before: &Latencies, now: &Latencies) -> Option<[u64; BUCKETS]> {
    let mut counts = [0; BUCKETS];
    for (count, (now, before)) in counts.iter_mut().zip(now.counts.iter().zip(&before.counts)) {
        *count = now.checked_sub(*before)?;
    }
    Some(counts)
}

/// The least sum of latencies with these counts, if each is at least `shortest_ns`.
fn least_ns(counts: &[u64; BUCKETS], shortest_ns: u64) -> u128 {
    sum(counts, |bucket| range_ns(bucket).0.max(shortest_ns))
}

/// The largest sum of latencies with these counts.
fn most_ns(counts: &[u64; BUCKETS]) -> u128 {
    sum(counts, |bucket| range_ns(bucket).1.min(LONGEST_NS))
}

/// At most 161 · 2^64 · 2^42, which 128 bits hold.
fn sum(counts: &[u64; BUCKETS], latency_ns: impl Fn(usize) -> u64) -> u128 {
    let latencies = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    latencies.map(|(bucket, count)| u128::from(*count) * u128::from(latency_ns(bucket))).sum()
}

#[cfg(test)]
mod tests;
