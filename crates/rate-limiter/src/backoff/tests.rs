use super::*;

const MS: u64 = 1_000_000;

#[test]
fn delays_double_up_to_the_longest_and_restart_after_a_success() {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
    let delays: Vec<u128> = backoff.by_ref().take(4).map(|delay| delay.as_millis()).collect();
    assert_eq!(delays, [100, 200, 350, 350]);
    backoff.succeeded();
    assert_eq!(backoff.next_delay().as_millis(), 100);
}

#[test]
fn attempts_wait_for_the_delay_of_the_last_failure() {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(10));
    assert!(backoff.is_ready(0));
    assert_eq!(backoff.failed(MS), 21 * MS);
    assert_eq!((backoff.is_ready(21 * MS - 1), backoff.is_ready(21 * MS)), (false, true));
    assert_eq!(backoff.failed(21 * MS), 61 * MS);
    backoff.succeeded();
    assert_eq!((backoff.is_ready(21 * MS), backoff.ready_at()), (true, 0));
}

#[test]
fn clock_that_goes_backwards_never_shortens_a_delay_and_the_longest_values_saturate() {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::MAX);
    backoff.failed(100 * MS);
    assert_eq!(backoff.failed(0), 120 * MS);
    let mut longest = Backoff::new(Duration::MAX, Duration::MAX);
    assert_eq!(longest.failed(5), u64::MAX);
}
