use super::*;

#[test]
fn each_line_of_input_is_a_mark() {
    let marks = AtomicU64::new(0);
    count_lines(&b"\nx\nno end of line"[..], &marks);
    assert_eq!(marks.load(Ordering::Acquire), 2);
}

#[test]
fn run_ends_at_its_time_or_its_count_or_on_request() {
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    let stop = StopCondition::new(Some(Duration::from_secs(10)), Some(100));
    assert!(!stop.reached(begin, at(9), 99));
    assert!(stop.reached(begin, at(10), 0));
    assert!(stop.reached(begin, at(0), 100));
    stop.requested.store(true, Ordering::Release);
    assert!(stop.reached(begin, at(0), 0));
}

#[test]
fn run_without_conditions_does_not_end() {
    let begin = Instant::now();
    assert!(!StopCondition::default().reached(begin, begin + Duration::from_secs(1 << 30), u64::MAX));
}
