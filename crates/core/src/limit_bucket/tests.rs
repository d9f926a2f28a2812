use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const NONE: Depth = Depth { idle_ns: 0, waiting_ns: 0 };

#[test]
fn client_limited_to_half_waits_as_long_as_it_ran() {
    let mut bucket = LimitBucket::new(Share::from_ppm(500_000).unwrap(), NONE, 0);
    bucket.charge(0, 100 * MS, 100 * MS);
    assert_eq!(bucket.ready_at(100 * MS), Some(200 * MS));
    assert_eq!(bucket.ready_at(200 * MS), Some(200 * MS));
}

#[test]
fn rate_of_zero_never_recovers_and_the_whole_gpu_never_waits() {
    let mut never = LimitBucket::new(Share::ZERO, NONE, 0);
    never.charge(0, 1, 1);
    assert_eq!(never.ready_at(1_000 * MS), None);
    let mut whole = LimitBucket::new(Share::ONE, NONE, 0);
    whole.charge(0, 50 * MS, 50 * MS);
    assert_eq!(whole.ready_at(50 * MS), Some(50 * MS));
}

#[test]
fn credit_earned_while_waiting_is_kept_and_credit_earned_while_idle_is_not() {
    let depth = Depth { idle_ns: 10 * MS, waiting_ns: 1_000 * MS };
    let mut waiting = LimitBucket::new(Share::from_ppm(500_000).unwrap(), depth, 0);
    let mut idle = waiting.clone();
    idle.was_idle(400 * MS);
    // The credits are 210 ms and 10 ms; 300 ms are used.
    waiting.charge(400 * MS, 400 * MS, 300 * MS);
    idle.charge(400 * MS, 400 * MS, 300 * MS);
    assert_eq!(waiting.ready_at(400 * MS), Some(580 * MS));
    assert_eq!(idle.ready_at(400 * MS), Some(980 * MS));
}

#[test]
fn same_rate_again_while_the_client_runs_costs_it_nothing() {
    let depth = Depth { idle_ns: 10 * MS, waiting_ns: 1_000 * MS };
    let mut bucket = LimitBucket::new(Share::ONE, depth, 0);
    bucket.set_rate(Share::ONE, 3_000 * MS);
    bucket.charge(0, 3_500 * MS, 3_500 * MS);
    assert_eq!(bucket.ready_at(3_500 * MS), Some(3_500 * MS));
}

#[test]
fn client_with_the_whole_gpu_does_not_wait_for_work_that_it_reports_late() {
    let mut bucket = LimitBucket::new(Share::ONE, Depth { idle_ns: 80 * MS, waiting_ns: 0 }, 0);
    bucket.charge(990 * MS, 1_000 * MS, 0);
    bucket.charge(800 * MS, 1_001 * MS, 201 * MS);
    assert!(!bucket.is_overdrawn(1_001 * MS));
}

#[test]
fn credit_that_was_lost_is_restored_once() {
    let mut bucket =
        LimitBucket::new(Share::from_ppm(500_000).unwrap(), Depth { idle_ns: 10 * MS, waiting_ns: 0 }, 0);
    bucket.charge(1_000 * MS, 1_000 * MS, 0);
    // 10 ms and those of 200 ms were earned, 120 ms are used.
    (0..2).for_each(|_| bucket.charge(800 * MS, 1_000 * MS, 60 * MS));
    assert_eq!(bucket.ready_at(1_000 * MS), Some(1_020 * MS));
}

proptest! {
    /// Readings that find no work do not change what a burst costs that is reported later.
    #[test]
    fn late_report_costs_what_one_in_time_costs(
        ppm in 10_000u32..=1_000_000,
        idle_ms in 0u64..500,
        readings in prop::collection::vec(1u64..50, 0..20),
        part in 0u64..=100,
    ) {
        let depth = Depth { idle_ns: 20 * MS, waiting_ns: 0 };
        let mut in_time = LimitBucket::new(Share::from_ppm(ppm).unwrap(), depth, 0);
        in_time.charge(0, idle_ms * MS, 0);
        let mut late = in_time.clone();
        let begun = idle_ms * MS;
        let mut now = begun;
        for reading in readings {
            late.charge(now, now + reading * MS, 0);
            now += reading * MS;
        }
        let used = (now - begun) * part / 100;
        in_time.charge(begun, now, used);
        late.charge(begun, now, used);
        prop_assert!(late.ready_at(now).unwrap().abs_diff(in_time.ready_at(now).unwrap()) <= 100, "{late:?} {in_time:?}");
    }

    #[test]
    fn charge_stays_within_rate_plus_depth_plus_one_grant(
        ppm in 10_000u32..=1_000_000, grants in prop::collection::vec(1u64..150 * MS, 20..200)
    ) {
        let rate = Share::from_ppm(ppm).unwrap();
        let depth = 20 * MS;
        let mut bucket = LimitBucket::new(rate, Depth { idle_ns: depth, waiting_ns: 0 }, 0);
        let (mut now, mut used) = (0, 0);
        for grant in grants {
            now = bucket.ready_at(now).unwrap();
            now += grant;
            bucket.charge(now - grant, now, grant);
            used += grant;
            prop_assert!(used <= rate.of(now) + depth + grant + 1);
        }
    }
}
