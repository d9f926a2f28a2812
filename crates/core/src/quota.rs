//! How long one grant lasts: Gemini's self-adapting quota per client (`docs/reference/wire.md`, "Grant length").

use crate::share::Share;

/// The longest grant of a limited client is at least this: shorter grants would consist of hand-offs.
const SHORTEST_LIMITED_NS: u64 = 1_000_000;

/// Bounds of a grant's length, all in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaPolicy {
    /// The grant of a client whose bursts are unknown, and the start of the adaption.
    pub base_ns: u64,
    /// No grant is shorter, unless the client's limit requires it.
    pub min_ns: u64,
    /// No grant is longer.
    pub cap_ns: u64,
    /// No grant is longer than limit × this, so that a limited client's pauses stay below it. Gemini: the window.
    pub limit_period_ns: u64,
}

impl Default for QuotaPolicy {
    /// 50 ms, at least 10, at most 100; a limited client pauses for less than 200 ms.
    fn default() -> Self {
        Self { base_ns: 50_000_000, min_ns: 10_000_000, cap_ns: 100_000_000, limit_period_ns: 200_000_000 }
    }
}

impl QuotaPolicy {
    /// The longest grant of a client with this limit.
    pub fn longest_ns(&self, limit: Share) -> u64 {
        limit.of(self.limit_period_ns).max(SHORTEST_LIMITED_NS).min(self.cap_ns)
    }
}

/// The adapting quota of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdaptiveQuota {
    quota_ns: u64,
}

impl AdaptiveQuota {
    /// Starts at the base.
    pub const fn new(policy: &QuotaPolicy) -> Self {
        Self { quota_ns: policy.base_ns }
    }

    /// The length of the next grant for a client whose longest burst is `burst_ns` (0: unknown).
    ///
    /// Exponential smoothing with weight one half; the upper bound wins over the lower one.
    pub fn next(&mut self, policy: &QuotaPolicy, burst_ns: u64, limit: Share) -> u64 {
        self.quota_ns = if burst_ns == 0 {
            policy.base_ns
        } else {
            let halves = u128::from(burst_ns) + u128::from(self.quota_ns);
            u64::try_from(halves / 2).unwrap_or(u64::MAX).max(policy.min_ns)
        };
        // Gemini leaves the base unbounded; a cap below it must still hold.
        self.quota_ns = self.quota_ns.min(policy.longest_ns(limit));
        self.quota_ns
    }
}

#[cfg(test)]
mod tests;
