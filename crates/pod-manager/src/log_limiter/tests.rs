use super::*;
use sluice_core::ClientId;

const S: u64 = 1_000_000_000;
const A: Party = Party::Client(ClientId(1));

#[test]
fn ten_lines_of_a_kind_pass_and_the_next_one_reports_the_dropped_ones() {
    let mut limiter = LogLimiter::default();
    let passed = (0..25).filter(|at| limiter.pass("a", A, 5 + at) == Some(None)).count();
    assert_eq!(passed, 10);
    assert_eq!(limiter.pass("b", A, 30), Some(None), "another kind has ten of its own");
    assert_eq!(limiter.pass("a", A, S - 1), None);
    assert_eq!(limiter.pass("a", A, S + 5), Some(NonZeroU64::new(16)));
    assert_eq!(limiter.pass("a", A, 3 * S), Some(None));
}

#[test]
fn lines_of_one_client_hide_none_of_another() {
    let mut limiter = LogLimiter::default();
    assert_eq!((0..1000).filter(|at| limiter.pass("a", A, *at).is_some()).count(), 10);
    for cause in [Party::Client(ClientId(2)), Party::peer(Some("uid"), Some(1), None), Party::Manager] {
        assert_eq!(limiter.pass("a", cause, 1000), Some(None), "{cause:?}");
    }
}

#[test]
fn peers_without_end_take_a_bounded_number_of_limits() {
    let mut limiter = LogLimiter::default();
    let passed =
        (0..100_000).filter(|pid| limiter.pass("a", Party::peer(None, Some(*pid), None), 0).is_some());
    assert_eq!(passed.count(), MAX_LIMITS + 10);
    assert_eq!(limiter.pass("a", A, 0), Some(None), "a client keeps its own");
    assert!(limiter.limits.len() <= MAX_LIMITS + 2);
    // When the buckets are full again, their place is free.
    assert_eq!(limiter.pass("a", Party::peer(None, Some(-1), None), 20 * S), Some(None));
    assert!(limiter.limits.len() < 4);
}
