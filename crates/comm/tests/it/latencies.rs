//! Latencies on the report page: their words and buckets, which the two sides have to agree on.

use sluice_comm::latency::{BOUNDS, BOUNDS_NS, BUCKETS, LatencyKind, bucket, range_ns};
use sluice_comm::page::{GrantView, ReportView};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MS: u64 = 1_000_000;

fn words() -> [AtomicU64; 512] {
    array::from_fn(|_| AtomicU64::new(0))
}

fn used(words: &[AtomicU64; 512]) -> Vec<(usize, u64)> {
    words.iter().map(|word| word.load(Relaxed)).enumerate().filter(|(_, value)| *value != 0).collect()
}

#[test]
fn latencies_have_their_words_behind_the_other_ones() {
    let words = words();
    let page = ReportView::new(&words);
    page.add_latency(LatencyKind::Step, 40_000);
    page.add_latency(LatencyKind::Step, 50_001);
    page.add_latency(LatencyKind::Request, u64::MAX);
    page.count_slo_violation();
    page.count_unobserved_step();
    let all = [(128, 90_001), (129, 1), (130, 1), (304, u64::MAX), (465, 1), (480, 1), (481, 1)];
    assert_eq!(used(&words), all);
    let steps = page.latencies(LatencyKind::Step);
    assert_eq!((steps.sum_ns, steps.counts[..3].to_vec()), (90_001, vec![1, 1, 0]));
    assert_eq!(page.latencies(LatencyKind::Request).counts[BUCKETS - 1], 1);
    assert_eq!((page.slo_violations(), page.unobserved_steps()), (1, 1));
}

#[test]
fn latency_goal_is_on_the_grant_page() {
    let words = words();
    GrantView::new(&words).set_slo(5 * MS);
    assert_eq!((used(&words), GrantView::new(&words).slo_ns()), (vec![(40, 5 * MS)], 5 * MS));
}

#[test]
fn buckets_reach_from_50_us_to_10_s_and_their_middle_is_within_4_percent() {
    assert_eq!((BOUNDS_NS[0], BOUNDS_NS[1], BOUNDS_NS[2]), (50_000, 54_000, 58_320));
    assert!(BOUNDS_NS[BOUNDS - 1] > 10_000 * MS, "{}", BOUNDS_NS[BOUNDS - 1]);
    for index in 1..BOUNDS {
        let (lower, upper) = range_ns(index);
        assert_eq!((bucket(lower), bucket(lower + 1), bucket(upper)), (index - 1, index, index));
        assert!((upper - lower) as f64 / 2.0 <= 0.0401 * lower as f64, "bucket {index}: {lower} to {upper}");
    }
    assert_eq!((range_ns(0), bucket(0)), ((0, 50_000), 0));
    assert_eq!(range_ns(BUCKETS - 1), (BOUNDS_NS[BOUNDS - 1], u64::MAX));
}
