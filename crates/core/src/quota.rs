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
    /// Gemini's bounds: no cap but limit × window.
    #[must_use]
    pub const fn gemini(base_ns: u64, min_ns: u64, window_ns: u64) -> Self {
        Self { base_ns, min_ns, cap_ns: u64::MAX, limit_period_ns: window_ns }
    }

    /// The longest grant of a client with this limit.
    #[must_use]
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
    #[must_use]
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const GEMINI: QuotaPolicy = QuotaPolicy::gemini(250 * MS, 100 * MS, 10_000 * MS);

    fn grants(policy: &QuotaPolicy, burst_ns: u64, limit: Share, count: usize) -> Vec<u64> {
        let mut quota = AdaptiveQuota::new(policy);
        (0..count).map(|_| quota.next(policy, burst_ns, limit)).collect()
    }

    #[test]
    fn gemini_quota_shrinks_to_the_minimum_for_short_bursts() {
        assert_eq!(grants(&GEMINI, 50 * MS, Share::ONE, 4), [150 * MS, 100 * MS, 100 * MS, 100 * MS]);
    }

    #[test]
    fn gemini_quota_stops_at_limit_times_window() {
        assert_eq!(grants(&GEMINI, 1_000_000 * MS, Share::ONE, 2), [10_000 * MS, 10_000 * MS]);
        let half = Share::from_ppm(500_000).unwrap();
        assert_eq!(grants(&GEMINI, 1_000_000 * MS, half, 1), [5_000 * MS]);
    }

    #[test]
    fn gemini_quota_grows_by_half_each_grant_without_sync_points() {
        let policy = QuotaPolicy::gemini(300 * MS, 20 * MS, 10_000 * MS);
        let mut quota = AdaptiveQuota::new(&policy);
        let mut last = quota.next(&policy, 0, Share::ONE);
        let mut seen = vec![last / 100_000];
        for _ in 0..9 {
            last = quota.next(&policy, 2 * last, Share::ONE);
            seen.push((last + 50_000) / 100_000);
        }
        assert_eq!(seen, [3_000, 4_500, 6_750, 10_125, 15_188, 22_781, 34_172, 51_258, 76_887, 100_000]);
    }

    #[test]
    fn gemini_base_is_granted_without_a_burst() {
        assert_eq!(grants(&GEMINI, 0, Share::ONE, 2), [250 * MS, 250 * MS]);
    }

    #[test]
    fn default_grants_are_at_most_100_ms() {
        let default = QuotaPolicy::default();
        assert_eq!(grants(&default, 0, Share::ONE, 1), [50 * MS]);
        assert_eq!(grants(&default, 10_000 * MS, Share::ONE, 2), [100 * MS, 100 * MS]);
        assert_eq!(grants(&default, 1, Share::ONE, 9).last(), Some(&(10 * MS)));
    }

    proptest! {
        #[test]
        fn grant_is_never_empty_and_never_above_the_cap(
            burst: u64, ppm in 1u32..=1_000_000, count in 1usize..20
        ) {
            let default = QuotaPolicy::default();
            for quota in grants(&default, burst, Share::from_ppm(ppm).unwrap(), count) {
                prop_assert!(quota >= SHORTEST_LIMITED_NS && quota <= default.cap_ns);
            }
        }
    }
}
