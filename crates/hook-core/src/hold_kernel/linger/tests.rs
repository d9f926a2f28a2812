use super::*;

const SWITCHES_NS: f64 = 300_000.0;

fn learned(gaps: impl IntoIterator<Item = u64>) -> Linger {
    let mut linger = Linger::default();
    gaps.into_iter().for_each(|us| linger.learn(us * 1_000, SWITCHES_NS));
    linger
}

fn after(gaps: impl IntoIterator<Item = u64>) -> u64 {
    learned(gaps).ns(SWITCHES_NS)
}

/// 600 gaps of 3 ms, of which one in `each` is of `short_us`.
fn one_in(each: u64, short_us: u64) -> Linger {
    learned((0..600).map(|at| if at % each == 0 { short_us } else { 3_000 }))
}

#[test]
fn short_gaps_of_a_token_loop_make_hold_kernels_linger() {
    let tokens = |_| [[50; 46].as_slice(), &[100_000]].concat();
    assert_eq!(after((0..4).flat_map(tokens)), 300_000);
    assert_eq!(after([50; 12]), 300_000, "within the first request");
}

#[test]
fn long_gaps_or_short_ones_that_are_hardly_shorter_do_not() {
    assert_eq!(after([9_000; 100]), 0);
    assert_eq!(after([280; 100].into_iter().chain([9_000; 2])), 0);
    let mut linger = Linger::default();
    (0..200).for_each(|_| linger.learn(20_000, SWITCHES_NS));
    (0..1_000).for_each(|_| linger.learn_interrupted());
    assert_eq!(linger.ns(SWITCHES_NS), 0);
}

#[test]
fn a_tenth_of_requests_that_follow_at_once_gets_a_short_linger_time() {
    assert_eq!(one_in(10, 20).ns(SWITCHES_NS), 37_500);
    // Longer gaps cost more to bridge, so that needs more of them.
    assert_eq!([40, 20, 10].map(|each| one_in(each, 55).ns(SWITCHES_NS)), [0, 75_000, 75_000]);
}

#[test]
fn linger_time_is_longer_than_the_gaps_that_it_is_for_or_0() {
    for short_us in (0..300).step_by(5) {
        for each in [2, 3, 5, 10, 20, 50] {
            let ns = one_in(each, short_us).ns(SWITCHES_NS);
            let bridges = ns as f64 > (short_us * 1_000) as f64 + MARGIN_NS;
            assert!(ns == 0 || bridges, "{ns} for one gap in {each} of {short_us} µs");
        }
    }
}

#[test]
fn requests_at_random_times_that_never_follow_at_once_do_not_linger() {
    // Gaps of 3.3 ms on average, exponential, by inversion of a regular grid in another order.
    let gap_us = |at: u64| {
        let part = ((at * 377) % 610) as f64 / 610.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 25 ms")]
        {
            (-3_300.0 * (1.0 - part).ln()) as u64
        }
    };
    assert_eq!(learned((0..1_220).map(gap_us)).ns(SWITCHES_NS), 0);
}
