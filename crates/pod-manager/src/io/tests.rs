use super::*;

const S: u64 = 1_000_000_000;

#[test]
fn ten_lines_of_a_kind_pass_and_the_next_one_reports_the_dropped_ones() {
    let mut limiter = LogLimiter::default();
    let passed = (0..25).filter(|at| limiter.pass("a", 5 + at) == Some(0)).count();
    assert_eq!(passed, 10);
    assert_eq!(limiter.pass("b", 30), Some(0), "another kind has ten of its own");
    assert_eq!(limiter.pass("a", S - 1), None);
    assert_eq!(limiter.pass("a", S + 5), Some(16));
    assert_eq!(limiter.pass("a", 3 * S), Some(0));
}
