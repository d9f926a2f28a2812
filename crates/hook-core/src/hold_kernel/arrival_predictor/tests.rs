use super::*;

const MS: u64 = 1_000_000;

fn after(intervals: impl IntoIterator<Item = u64>) -> ArrivalPredictor {
    let mut predictor = ArrivalPredictor::default();
    let mut now = 1_000 * MS;
    predictor.learn(now);
    for interval in intervals {
        now += interval;
        predictor.learn(now);
    }
    predictor
}

/// Intervals of 10 ms, alternately longer and shorter by `by`.
fn wavering(by: u64, count: usize) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(move |at| if at % 2 == 0 { 10 * MS + by } else { 10 * MS - by })
}

fn steady(count: usize) -> impl Iterator<Item = u64> + Clone {
    wavering(20_000, count)
}

#[test]
fn regular_intervals_are_predicted() {
    let predictor = after(wavering(30_000, 30));
    let next = predictor.next().expect("an interval of 10 ms");
    let due = (1_000 + 31 * 10) as f64 * MS as f64;
    assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}, {due}");
    assert!(next.margin_ns > 60_000.0, "the margin covers the jitter: {next:?}");
}

#[test]
fn few_requests_are_not_predicted() {
    assert_eq!(after(steady(3)).next(), None);
}

#[test]
fn irregular_requests_are_not_predicted() {
    let mut state = 7_u64;
    let mut interval = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        MS + (state >> 33) % (20 * MS)
    };
    let mut predictor = ArrivalPredictor::default();
    let mut now = 0;
    for _ in 0..2_000 {
        now += interval();
        predictor.learn(now);
        assert_eq!(predictor.next(), None);
    }
}

#[test]
fn prediction_resumes_after_a_pause() {
    for pause in [20 * MS, 2_000 * MS] {
        let next = after(steady(30).chain([pause])).next().expect("an established interval");
        let due = (1_300 * MS + pause + 10 * MS) as f64;
        assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}");
    }
}

#[test]
fn interval_is_kept_over_two_misses() {
    let other = steady(600).chain([MS, 2_000 * MS]);
    let next = after(other).next().expect("an established interval");
    assert!((next.mean_ns - (1_000 + 6_000 + 2_001 + 10) as f64 * MS as f64).abs() < 30_000.0, "{next:?}");
    // An interval that was not established is not kept.
    assert_eq!(after(steady(7).chain([MS, 2_000 * MS]).chain(steady(7))).next(), None);
}

#[test]
fn repeated_misses_stop_predictions_until_one_request_is_in_step() {
    let off = |count: usize| steady(30).chain((0..count).map(|at| (30 + 7 * at as u64) * MS));
    assert!(after(off(2)).next().is_some());
    for count in [3, 4] {
        assert_eq!(after(off(count)).next(), None, "{count} in a row");
        assert!(after(off(count).chain(steady(1))).next().is_some(), "{count} in a row");
    }
    assert_eq!(after(off(5).chain(steady(1))).next(), None, "a new interval is being learned");
}

#[test]
fn single_late_or_early_request_keeps_the_interval() {
    for off in [700_000_i64, -700_000] {
        let stumbles = steady(30).chain([(10 * MS).strict_add_signed(off)]);
        let due = |beats: u64| (1_000 + beats * 10) as f64 * MS as f64;
        let next = after(stumbles.clone()).next().expect("the next is on the clock");
        assert!((next.mean_ns - due(32)).abs() < 60_000.0, "{next:?}");
        let on_beat = stumbles.clone().chain([(10 * MS).strict_add_signed(-off)]);
        let next = after(on_beat).next().expect("the request was on the clock");
        assert!((next.mean_ns - due(33)).abs() < 60_000.0, "{next:?}");
        // A program that pauses after each request is followed.
        let next = after(stumbles.chain([10 * MS])).next().expect("in step with the last");
        assert!((next.mean_ns - due(33) - off as f64).abs() < 60_000.0, "{next:?}");
    }
}

/// A delay of 300 us in each fifteenth interval, for both kinds of programs. Learning the kind takes one delay.
#[test]
fn delay_of_the_host_does_not_spoil_later_predictions() {
    for by_clock in [true, false] {
        let (mut predictor, mut now) = (after(steady(30)), 1_300 * MS);
        for at in 1..200_u64 {
            now += 10 * MS;
            let delay = if at % 15 == 0 { 300_000 } else { 0 };
            predictor.learn(now + delay);
            now += if by_clock { 0 } else { delay };
            let next = predictor.next().expect("an established interval");
            if at <= 16 {
                continue;
            }
            let error = next.mean_ns - (now + 10 * MS) as f64;
            assert!(
                error.abs() < next.margin_ns && next.margin_ns < 150_000.0,
                "{at} {by_clock}: {error} {next:?}"
            );
        }
    }
}

#[test]
fn margin_grows_with_the_jitter_up_to_a_limit() {
    let margin = |by| after(steady(30).chain(wavering(by, 40))).next().map(|next| next.margin_ns);
    assert!(margin(60_000).expect("still regular") > 1.5 * margin(20_000).expect("regular"));
    assert_eq!(margin(350_000), None, "the margin is too wide");
}

#[test]
fn new_interval_is_learned() {
    let predictor = after(steady(30).chain((0..30).map(|_| 4 * MS)));
    let next = predictor.next().expect("an interval of 4 ms");
    assert!((next.mean_ns - (1_300 + 31 * 4) as f64 * MS as f64).abs() < 30_000.0, "{next:?}");
}

#[test]
fn requests_minutes_apart_are_not_predicted() {
    assert_eq!(after((0..30).map(|_| 60_000 * MS)).next(), None);
}
