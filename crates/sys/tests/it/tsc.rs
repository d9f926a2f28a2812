//! Counter and clock, and conversions between them. Rates and moments are given, so that no test depends on the machine.

use sluice_sys::clock::monotonic_ns;
use sluice_sys::tsc::{self, Calibration, Moment};

/// A calibration of `ticks` in `ns` nanoseconds, ending an hour after boot.
fn rate(ticks: u64, ns: u64) -> Calibration {
    let second = Moment { ticks: 7_200_000_000_000 + ticks, ns: 3_600_000_000_000 + ns };
    Calibration::between(Moment { ticks: 7_200_000_000_000, ns: 3_600_000_000_000 }, second).unwrap()
}

/// Rates of real machines, measured over 20 ms, a second and 100 days.
fn rates() -> [Calibration; 4] {
    [
        rate(42_000_123, 20_000_077),
        rate(2_999_999_997, 1_000_000_001),
        rate(19_200_000, 1_000_000_000),
        rate(8_640_000_000_000_001 * 3, 8_640_000_000_000_000),
    ]
}

#[test]
fn time_converted_there_and_back_is_the_same_within_one_tick() {
    for rate in rates() {
        let tick_ns = rate.ns_at(rate.ticks_at(0) + 1_000).div_ceil(1_000).min(60);
        for ns in (3_600_000_000_000..3_700_000_000_000_u64).step_by(777_777_777) {
            let back = rate.ns_at(rate.ticks_at(ns));
            assert!(back <= ns && ns - back <= tick_ns.max(1) + 1, "{ns} came back as {back}");
        }
    }
}

#[test]
fn later_time_never_converts_to_an_earlier_count() {
    for rate in rates() {
        let around = rate.ticks_at(3_600_020_000_077);
        let ticks: Vec<_> = (3_600_020_000_000..3_600_020_002_000).map(|ns| rate.ticks_at(ns)).collect();
        assert!(ticks.is_sorted());
        let times: Vec<_> = (around - 1000..around + 1000).map(|ticks| rate.ns_at(ticks)).collect();
        assert!(times.is_sorted());
    }
}

#[test]
fn deadline_lies_ahead_by_the_rate_times_its_distance() {
    let rate = rate(3_000_000_000, 1_000_000_000);
    let now = 3_601_000_000_000;
    assert_eq!(rate.ticks_at(now + 50_000_000) - rate.ticks_at(now), 150_000_000);
    assert_eq!(rate.ticks_at(now) - rate.ticks_at(now - 50_000_000), 150_000_000);
}

#[test]
fn times_outside_the_counters_range_end_at_its_limits() {
    let rate = rate(3_000_000_000, 1_000_000_000);
    assert_eq!((rate.ticks_at(0), rate.ticks_at(u64::MAX)), (0, u64::MAX));
    let young =
        Calibration::between(Moment { ticks: 0, ns: 1 << 60 }, Moment { ticks: 9, ns: (1 << 60) + 3 });
    assert_eq!(young.unwrap().ticks_at(0), 0);
}

#[test]
fn two_equal_moments_give_no_rate() {
    let moment = Moment { ticks: 5, ns: 5 };
    assert_eq!(Calibration::between(moment, moment), None);
    assert_eq!(Calibration::between(Moment { ticks: 6, ns: 4 }, moment), None);
    assert_eq!(Calibration::between(Moment { ticks: 4, ns: 6 }, moment), None);
}

#[test]
fn refresh_follows_an_adjusted_clock() {
    let mut rate = rate(3_000_000_000, 1_000_000_000);
    let (ticks, ns) = (7_203_000_000_000, 3_601_000_000_000);
    // A second later by the counter the clock shows 500 ns more than a second.
    rate.refresh_at(Moment { ticks: ticks + 3_000_000_000, ns: ns + 1_000_000_500 });
    assert_eq!(rate.ticks_at(ns + 1_000_000_500), ticks + 3_000_000_000);
    assert_eq!(rate.ns_at(ticks + 6_000_000_000), ns + 2_000_001_000);
    let before = rate;
    rate.refresh_at(Moment { ticks: ticks + 3_000_000_300, ns: ns + 1_000_000_600 });
    assert_eq!(rate, before, "too close to the last moment to tell a rate");
}

#[test]
fn counter_that_was_set_back_is_followed_from_the_next_refresh_on() {
    let mut rate = rate(3_000_000_000, 1_000_000_000);
    let now = 3_602_000_000_000;
    // Another host, whose counter is young and runs at two thirds of the rate.
    rate.refresh_at(Moment { ticks: 5_000, ns: now });
    assert_eq!(rate.ticks_at(now), 5_000, "a deadline would lie hours ahead");
    assert!(rate.is_rate_uncertain());
    rate.refresh_at(Moment { ticks: 5_000 + 200_000_000, ns: now + 100_000_000 });
    assert!(!rate.is_rate_uncertain());
    assert_eq!(rate.ticks_at(now + 200_000_000), 5_000 + 400_000_000);
}

#[test]
fn counter_that_was_set_forward_is_followed_from_the_next_refresh_on() {
    let mut rate = rate(3_000_000_000, 1_000_000_000);
    let (ticks, ns) = (7_203_000_000_000, 3_601_000_000_000);
    let moved = ticks + 3_000_000_000 + 3_000_000_000_000;
    rate.refresh_at(Moment { ticks: moved, ns: ns + 1_000_000_000 });
    assert_eq!(rate.ticks_at(ns + 1_000_000_000), moved);
    assert_eq!(rate.ticks_at(ns + 1_050_000_000), moved + 150_000_000, "the rate stays until it is measured");
}

#[test]
fn clock_and_the_counter_advance() {
    let (ns, ticks) = (monotonic_ns(), tsc::now());
    while monotonic_ns() == ns || tsc::now() == ticks {}
    assert!(monotonic_ns() > ns && tsc::now() > ticks);
}

#[test]
fn measured_rate_places_a_later_moment_where_both_clocks_show_it() {
    let Some(calibration) = Calibration::measure() else {
        assert!(!tsc::invariant() || !std::fs::exists("/sys/devices/system/clocksource").unwrap());
        return;
    };
    let (before, ticks, after) = (monotonic_ns(), tsc::now(), monotonic_ns());
    // The reading lies between two readings of the clock, within the error of the calibration's moments.
    let slack = 100_000;
    let shown = calibration.ns_at(ticks);
    assert!((before - slack..=after + slack).contains(&shown), "{before} {shown} {after}");
}
