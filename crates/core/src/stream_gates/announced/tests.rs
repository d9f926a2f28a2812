use super::*;

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;
const IDLE: Activity = Activity { busy: false, since_ns: 0 };

#[test]
fn announcement_counts_until_work_comes_or_is_late() {
    let announced = Announced::at(S, 200 * US).unwrap();
    assert!(!announced.is_over(S + 699 * US, IDLE));
    assert!(announced.is_over(S + 700 * US, IDLE));
    assert!(announced.is_over(S, Activity { busy: true, since_ns: S }));
    // A whole request may have begun and ended between two readings.
    assert!(announced.is_over(S + 2, Activity { busy: false, since_ns: S + 1 }));
}

#[test]
fn announcement_counts_for_two_milliseconds_at_most_and_is_ignored_further_ahead() {
    assert_eq!(Announced::at(S, MAX_NS + 1), None);
    assert_eq!(Announced::at(S, MAX_NS).map(|announced| announced.until), Some(S + MAX_NS));
}

#[test]
fn page_that_is_read_after_the_work_was_due_is_ignored() {
    assert_eq!(Announced::on_page(S, S - LATE_NS), None);
    assert_eq!(Announced::on_page(S, S - 100 * US), Announced::at(S, 0));
    assert_eq!(Announced::on_page(S, S + MAX_NS), Announced::at(S, MAX_NS));
    assert_eq!(Announced::on_page(S, S + 2 * MAX_NS), None);
}
