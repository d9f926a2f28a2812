use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const GEMINI: QuotaPolicy = gemini(250 * MS, 100 * MS, 10_000 * MS);

/// Gemini's bounds: no cap but limit × window.
const fn gemini(base_ns: u64, min_ns: u64, window_ns: u64) -> QuotaPolicy {
    QuotaPolicy { base_ns, min_ns, cap_ns: u64::MAX, limit_period_ns: window_ns }
}

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
    let policy = gemini(300 * MS, 20 * MS, 10_000 * MS);
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
