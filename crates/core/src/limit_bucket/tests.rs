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

proptest! {
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
