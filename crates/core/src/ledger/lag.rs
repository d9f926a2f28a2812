//! How far a client is behind its request: the reason to delay a latency-critical client that uses more than its own.

use super::policy::ClientSpec;
use crate::share::WHOLE_PPM;

/// A client without a request counts as one with this part of the GPU.
const LEAST: u32 = WHOLE_PPM / 100;

/// GPU time that the request promised to an active client, less what the client was charged. Nanoseconds × parts per
/// million, within the bounds of [`Lag::charge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lag {
    level: i128,
    counted_until: u64,
}

impl Lag {
    /// The client becomes active: lag from before is kept only if the pause was `short`.
    pub(super) fn becomes_active(&mut self, short: bool, now: u64) {
        self.level = if short { self.level } else { 0 };
        self.counted_until = now;
    }

    /// Counts the time up to `now`, in which the client was active, and `used_ns` that it was charged.
    pub(super) fn charge(&mut self, spec: &ClientSpec, used_ns: u64, bound_ns: u64, now: u64) {
        let bound = scaled(bound_ns);
        self.level = (self.at(spec, now) - scaled(used_ns)).clamp(-bound, bound);
        self.counted_until = self.counted_until.max(now);
    }

    /// The lag at `now` of a client that is active and has been running for `running_ns` that are not charged yet.
    pub(super) fn exceeds(&self, spec: &ClientSpec, running_ns: u64, bound_ns: u64, now: u64) -> bool {
        self.at(spec, now) - scaled(running_ns) > scaled(bound_ns)
    }

    fn at(&self, spec: &ClientSpec, now: u64) -> i128 {
        let elapsed = i128::from(now.saturating_sub(self.counted_until));
        self.level + elapsed * i128::from(spec.request.ppm().max(LEAST).min(spec.limit.ppm()))
    }
}

fn scaled(ns: u64) -> i128 {
    i128::from(ns) * i128::from(WHOLE_PPM)
}
