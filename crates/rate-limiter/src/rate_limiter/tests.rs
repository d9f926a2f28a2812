use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

#[test]
fn full_bucket_allows_the_burst_and_then_one_token_per_period() {
    let mut limiter = RateLimiter::full(Rate::one_per(64, 100));
    assert!(limiter.try_take(60, 1000));
    assert!(!limiter.try_take(5, 1000), "four tokens are left");
    assert!(limiter.try_take(4, 1000));
    assert!(!limiter.try_take(1, 1099));
    assert!(limiter.try_take(1, 1100));
    assert_eq!(limiter.available(1100 + 64 * 100), 64);
    assert_eq!(limiter.available(S), 64, "a bucket holds its burst at most");
}

#[test]
fn refused_take_changes_nothing() {
    let mut limiter = RateLimiter::full(Rate::one_per(3, 10));
    let before = limiter;
    assert!(!limiter.try_take(4, 50));
    assert_eq!((limiter, limiter.ready_at(4)), (before, None));
}

#[test]
fn take_up_to_returns_what_the_bucket_holds() {
    let mut limiter = RateLimiter::full(Rate::per_second(32, 20));
    assert_eq!([16, 16, 16].map(|wanted| limiter.take_up_to(wanted, 0)), [16, 16, 0]);
    assert_eq!([16, 16].map(|wanted| limiter.take_up_to(wanted, S)), [16, 4]);
    assert_eq!(limiter.take_up_to(1000, 3600 * S), 32);
}

#[test]
fn debt_is_bounded_and_paid_back_before_the_next_token() {
    let mut limiter = RateLimiter::full(Rate::one_per(2, 10));
    assert!(limiter.take(2, 3, 1000));
    assert!(!limiter.take(1, 3, 1000));
    assert_eq!((limiter.available(1000), limiter.ready_at(0)), (0, Some(1010)));
    assert!(!limiter.take(u64::MAX, 3, 1000));
    assert_eq!(limiter.ready_at(0), Some(1030));
    assert_eq!(limiter.ready_at(1), Some(1040));
}

#[test]
fn smaller_bound_of_the_debt_does_not_cancel_a_debt() {
    let mut limiter = RateLimiter::full(Rate::one_per(1, 10));
    limiter.take(10, 9, 0);
    let before = limiter;
    assert!(!limiter.take(1, 0, 0));
    assert_eq!(limiter, before);
}

#[test]
fn bucket_that_never_refills_is_not_ready_again() {
    let mut limiter = RateLimiter::full(Rate { burst: 2, tokens: 0, period_ns: 1 });
    assert_eq!(limiter.ready_at(2), Some(0));
    assert!(limiter.try_take(2, 5));
    assert_eq!((limiter.ready_at(0), limiter.ready_at(1), limiter.available(u64::MAX)), (Some(0), None, 0));
}

#[test]
fn more_than_one_token_a_nanosecond_are_counted() {
    // The clock counts scans: each adds 100 tokens.
    let mut limiter = RateLimiter::full(Rate { burst: 100, tokens: 100, period_ns: 1 });
    assert!(!limiter.take(250, u64::MAX, 7));
    assert_eq!([7, 8, 9, 10].map(|scan| limiter.available(scan)), [0, 0, 50, 100]);
}

#[test]
fn changed_rate_keeps_tokens_and_debt() {
    let mut limiter = RateLimiter::full(Rate::one_per(10, 10));
    assert!(limiter.try_take(4, 100));
    limiter.set_rate(Rate::one_per(20, 5), 100);
    assert_eq!([100, 105].map(|now| limiter.available(now)), [6, 7]);
    limiter.set_rate(Rate::one_per(3, 5), 105);
    assert_eq!(limiter.available(105), 3);
    limiter.take(8, u64::MAX, 105);
    limiter.set_rate(Rate::one_per(7, 2), 105);
    assert_eq!(limiter.ready_at(0), Some(115), "five tokens of debt at the new rate");
}

#[test]
fn clock_that_goes_backwards_adds_no_tokens() {
    let mut limiter = RateLimiter::full(Rate::one_per(2, 10));
    assert!(limiter.try_take(2, 1000));
    assert_eq!(limiter.available(900), 0);
    assert!(!limiter.try_take(1, 900));
    assert_eq!(limiter.ready_at(1), Some(1010));
}

#[test]
fn largest_values_saturate() {
    let huge = Rate { burst: u64::MAX, tokens: u64::MAX, period_ns: u64::MAX };
    let mut limiter = RateLimiter::full(huge);
    assert!(limiter.try_take(u64::MAX, u64::MAX));
    limiter.take(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(limiter.ready_at(u64::MAX), Some(u64::MAX));
    let mut slow = RateLimiter::full(Rate::one_per(1, u64::MAX));
    assert!(slow.try_take(1, u64::MAX));
    assert_eq!(slow.ready_at(1), Some(u64::MAX));
    let mut instant = RateLimiter::full(Rate { burst: 5, tokens: 1, period_ns: 0 });
    assert!(instant.try_take(5, 0) && instant.available(0) == 5, "no period: always full");
}

proptest! {
    #[test]
    fn tokens_taken_never_exceed_burst_plus_refill(
        burst in 1u64..100, tokens in 1u64..50, period_ns in 1u64..1000,
        takes in prop::collection::vec((0u64..500, 0u64..40), 1..200),
    ) {
        let mut limiter = RateLimiter::full(Rate { burst, tokens, period_ns });
        let (mut now, mut taken) = (0u64, 0u64);
        for (wait, cost) in takes {
            now += wait;
            if limiter.try_take(cost, now) {
                taken += cost;
            }
            prop_assert!(taken <= burst + now * tokens / period_ns);
        }
    }

    #[test]
    fn ready_at_is_the_first_moment_at_which_a_take_succeeds(
        burst in 1u64..100, tokens in 1u64..50, period_ns in 1u64..1000, used in 0u64..300, cost in 1u64..100,
        now in 0u64..10_000,
    ) {
        let mut limiter = RateLimiter::full(Rate { burst, tokens, period_ns });
        limiter.take(used, u64::MAX, now);
        let Some(ready) = limiter.ready_at(cost) else {
            prop_assert!(cost > burst);
            return Ok(());
        };
        let at = ready.max(now);
        prop_assert!(limiter.available(at) >= cost);
        let mut before = limiter;
        prop_assert!(limiter.try_take(cost, at));
        if ready > now {
            prop_assert!(before.available(ready - 1) < cost);
            prop_assert!(!before.try_take(cost, ready - 1));
        }
    }

    #[test]
    fn backward_clock_never_gives_more_than_the_latest_time(
        takes in prop::collection::vec((0u64..10_000, 0u64..20), 1..100),
    ) {
        let mut limiter = RateLimiter::full(Rate::one_per(16, 7));
        let (mut latest, mut taken) = (0, 0);
        for (now, cost) in takes {
            latest = latest.max(now);
            if limiter.try_take(cost, now) {
                taken += cost;
            }
            prop_assert!(taken <= 16 + latest / 7);
        }
    }
}
