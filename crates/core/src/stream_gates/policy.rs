//! The settings of the stream gates.

use crate::share::Share;

/// Settings of the stream gates; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatePolicy {
    /// The gates are opened once all latency-critical processes have been idle for this time: the steps of one request may have pauses
    /// between them. Default 500 µs.
    pub idle_ns: u64,
    /// A process that has been busy for less than this may soon be idle again. Default 2 ms.
    pub short_ns: u64,
    /// How often activity is read until then. Default 100 µs.
    pub short_poll_ns: u64,
    /// How often activity is read after that, while the gates are closed. Default 250 µs.
    pub poll_ns: u64,
    /// How often activity is read while the gates are open: a wake-up may be lost. Default 50 ms.
    pub idle_poll_ns: u64,
    /// The part of the time for which the gates are open, whatever the latency-critical processes do; below 1. Default 5 %.
    pub least_open: Share,
    /// The gates are closed for at most this time at once. Then they are open for [`Self::least_open`] of it. Default 1 s.
    pub period_ns: u64,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            idle_ns: 500_000,
            short_ns: 2_000_000,
            short_poll_ns: 100_000,
            poll_ns: 250_000,
            idle_poll_ns: 50_000_000,
            least_open: Share::from_ppm(50_000).unwrap_or(Share::ZERO),
            period_ns: 1_000_000_000,
        }
    }
}
