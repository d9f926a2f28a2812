//! Latencies of steps and requests: the buckets in which a process counts them on its report page.

/// Number of upper bounds. One more bucket holds the latencies above the highest bound.
pub const BOUNDS: usize = 160;
/// Number of buckets.
pub const BUCKETS: usize = BOUNDS + 1;

/// Upper bounds of the buckets, in nanoseconds: from 50 µs to 10 s, each 1.08 times the one before. The middle of a bucket is
/// therefore at most 4 % away from each latency in it.
pub const BOUNDS_NS: [u64; BOUNDS] = bounds();

const FIRST_BOUND_NS: u64 = 50_000;
/// Ratio of two successive bounds.
const RATIO: (u64, u64) = (27, 25);

const fn bounds() -> [u64; BOUNDS] {
    let mut bounds = [FIRST_BOUND_NS; BOUNDS];
    let mut index = 1;
    while index < BOUNDS {
        bounds[index] = bounds[index - 1] * RATIO.0 / RATIO.1;
        index += 1;
    }
    bounds
}

/// What a latency was measured of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyKind {
    /// From the first call after the thread's last wait to the end of the next wait.
    Step,
    /// Steps with shorter pauses than the linger time between them.
    Request,
}

/// The latencies of a process since it attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// Their sum, in nanoseconds. It wraps.
    pub sum_ns: u64,
    /// Their number by [`bucket`].
    pub counts: [u64; BUCKETS],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { sum_ns: 0, counts: [0; BUCKETS] }
    }
}

/// The bucket of a latency: the first one whose bound is not below it.
pub fn bucket(ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < ns)
}

/// The latencies of a bucket are above the first and not above the second value, in nanoseconds.
pub fn range_ns(bucket: usize) -> (u64, u64) {
    let lower = bucket.checked_sub(1).and_then(|below| BOUNDS_NS.get(below.min(BOUNDS - 1)));
    (lower.copied().unwrap_or(0), BOUNDS_NS.get(bucket).copied().unwrap_or(u64::MAX))
}
