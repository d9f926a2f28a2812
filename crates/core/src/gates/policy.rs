//! What the gates are set to.

use crate::share::Share;

/// Settings of the gates; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatePolicy {
    /// Once all latency-critical processes have been idle for so long, the gates are opened. Default 500 µs: the steps of one
    /// request may have pauses between them. Where they have none, or shorter ones, the gates are opened earlier.
    pub idle_ns: u64,
    /// Somebody who has been busy for less than this may soon be through. Default 2 ms.
    pub short_ns: u64,
    /// How often whether they are idle is looked at until then. Default 100 µs.
    pub short_look_ns: u64,
    /// How often whether they are idle is looked at, while the gates are closed. Default 250 µs.
    pub look_ns: u64,
    /// How often whether they are busy is looked at while the gates are open: their doorbells may be broken. Default 50 ms.
    pub idle_look_ns: u64,
    /// The part of the time for which the gates are open, whatever the latency-critical processes do; below 1. Default 5 %.
    pub least_open: Share,
    /// The gates are closed for at most so long at a time. Then they are open for [`Self::least_open`] of it. Default 1 s.
    pub period_ns: u64,
    /// What was running when the gates were closed has ended after so long, unless it is a single long kernel. Default 25 ms.
    pub drain_ns: u64,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            idle_ns: 500_000,
            short_ns: 2_000_000,
            short_look_ns: 100_000,
            look_ns: 250_000,
            idle_look_ns: 50_000_000,
            least_open: Share::from_ppm(50_000).unwrap_or(Share::ZERO),
            period_ns: 1_000_000_000,
            drain_ns: 25_000_000,
        }
    }
}
