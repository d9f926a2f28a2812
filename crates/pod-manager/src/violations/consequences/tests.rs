use super::*;
use crate::message::pair;

const MS: u64 = 1_000_000;

#[test]
fn finding_is_repeated_by_a_later_check_of_the_same_process_and_kind_within_ten_seconds() {
    let mut consequences = Consequences::new(ViolationPolicy::Stop, pair().unwrap().0);
    let mut is_repeated = |id, kind, at_ms| consequences.is_repeated(Ok((id, 7)), kind, at_ms * MS);
    assert!(!is_repeated(1, ViolationKind::TimeSlice, 1_000));
    assert!(!is_repeated(1, ViolationKind::TimeSlice, 1_001), "another group, in the same check");
    assert!(!is_repeated(1, ViolationKind::StoppedGroupRan, 1_500));
    assert!(!is_repeated(2, ViolationKind::TimeSlice, 1_500));
    assert!(is_repeated(1, ViolationKind::TimeSlice, 1_500));
    assert!(!is_repeated(1, ViolationKind::TimeSlice, 11_600), "10 s later");
    assert!(is_repeated(1, ViolationKind::TimeSlice, 21_500));
}
