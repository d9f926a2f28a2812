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

/// Ten milliseconds, by turns so much more and less.
fn wavering(by: u64, count: usize) -> impl Iterator<Item = u64> + Clone {
    (0..count).map(move |at| if at % 2 == 0 { 10 * MS + by } else { 10 * MS - by })
}

fn steady(count: usize) -> impl Iterator<Item = u64> + Clone {
    wavering(20_000, count)
}

#[test]
fn a_steady_pace_is_foreseen() {
    let predictor = after(wavering(30_000, 30));
    let next = predictor.next().expect("every ten milliseconds");
    let due = (1_000 + 31 * 10) as f64 * MS as f64;
    assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}, {due}");
    assert!(next.margin_ns > 60_000.0, "as wide as the wavering is: {next:?}");
}

#[test]
fn a_few_requests_are_no_pace() {
    assert_eq!(after(steady(3)).next(), None);
}

#[test]
fn requests_that_come_as_they_like_are_not_foreseen() {
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
fn a_pace_is_foreseen_behind_a_pause_as_before_it() {
    for pause in [20 * MS, 2_000 * MS] {
        let next = after(steady(30).chain([pause])).next().expect("is_established");
        let due = (1_300 * MS + pause + 10 * MS) as f64;
        assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}");
    }
}

#[test]
fn a_program_that_does_something_else_and_pauses_goes_on_as_before() {
    let other = steady(600).chain([MS, 2_000 * MS]);
    let next = after(other).next().expect("is_established");
    assert!((next.mean_ns - (1_000 + 6_000 + 2_001 + 10) as f64 * MS as f64).abs() < 30_000.0, "{next:?}");
    // What was never is_established is not remembered.
    assert_eq!(after(steady(7).chain([MS, 2_000 * MS]).chain(steady(7))).next(), None);
}

#[test]
fn who_is_off_again_and_again_is_foreseen_no_more_until_one_is_in_step() {
    let off = |count: usize| steady(30).chain((0..count).map(|at| (30 + 7 * at as u64) * MS));
    assert!(after(off(2)).next().is_some());
    for count in [3, 4] {
        assert_eq!(after(off(count)).next(), None, "{count} in a row");
        assert!(after(off(count).chain(steady(1))).next().is_some(), "{count} in a row");
    }
    assert_eq!(after(off(5).chain(steady(1))).next(), None, "another pace is looked for");
}

#[test]
fn one_that_is_late_or_early_costs_the_pace_nothing() {
    for off in [700_000_i64, -700_000] {
        let stumbles = steady(30).chain([(10 * MS).strict_add_signed(off)]);
        let due = |beats: u64| (1_000 + beats * 10) as f64 * MS as f64;
        let next = after(stumbles.clone()).next().expect("the next is on the by_clock_grid");
        assert!((next.mean_ns - due(32)).abs() < 60_000.0, "{next:?}");
        let on_beat = stumbles.clone().chain([(10 * MS).strict_add_signed(-off)]);
        let next = after(on_beat).next().expect("it was");
        assert!((next.mean_ns - due(33)).abs() < 60_000.0, "{next:?}");
        // Those who count from the last one are followed.
        let next = after(stumbles.chain([10 * MS])).next().expect("in step with the last");
        assert!((next.mean_ns - due(33) - off as f64).abs() < 60_000.0, "{next:?}");
    }
}

/// A delay of 300 us each fifteenth time, by either way to keep pace, which it takes one to learn.
#[test]
fn a_hiccup_of_the_host_hides_no_request_behind_it() {
    for by_clock in [true, false] {
        let (mut predictor, mut now) = (after(steady(30)), 1_300 * MS);
        for at in 1..200_u64 {
            now += 10 * MS;
            let delay = if at % 15 == 0 { 300_000 } else { 0 };
            predictor.learn(now + delay);
            now += if by_clock { 0 } else { delay };
            let next = predictor.next().expect("is_established");
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
fn who_wavers_ever_more_is_foreseen_with_a_margin_that_grows() {
    let margin = |by| after(steady(30).chain(wavering(by, 40))).next().map(|next| next.margin_ns);
    assert!(margin(60_000).expect("still a pace") > 1.5 * margin(20_000).expect("a pace"));
    assert_eq!(margin(350_000), None, "too wide to hold for");
}

#[test]
fn another_pace_is_found() {
    let predictor = after(steady(30).chain((0..30).map(|_| 4 * MS)));
    let next = predictor.next().expect("every four milliseconds");
    assert!((next.mean_ns - (1_300 + 31 * 4) as f64 * MS as f64).abs() < 30_000.0, "{next:?}");
}

#[test]
fn requests_minutes_apart_have_no_pace() {
    assert_eq!(after((0..30).map(|_| 60_000 * MS)).next(), None);
}
