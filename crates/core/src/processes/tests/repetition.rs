use crate::processes::stop::is_repeated;
use crate::processes::{Checks, ViolationKind};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

#[test]
fn finding_is_repeated_by_a_later_check_of_the_same_kind_within_ten_seconds() {
    let mut findings = BTreeMap::new();
    let mut is_repeated = |kind, at_ms| is_repeated(&mut findings, kind, None, at_ms * MS);
    assert!(!is_repeated(ViolationKind::TimeSlice, 1_000));
    assert!(!is_repeated(ViolationKind::TimeSlice, 1_001), "another group, in the same check");
    assert!(!is_repeated(ViolationKind::StoppedGroupRan, 1_500));
    assert!(is_repeated(ViolationKind::TimeSlice, 1_500));
    assert!(!is_repeated(ViolationKind::TimeSlice, 11_600), "10 s later");
    assert!(is_repeated(ViolationKind::TimeSlice, 21_500));
}

/// One check reads 32 of the groups, and the checks are half a second apart.
#[test]
fn slices_of_many_groups_that_are_changed_once_are_no_repetition() {
    let mut findings = BTreeMap::new();
    let mut is_repeated = |before, current| {
        let checks = Some(Checks { current, before });
        is_repeated(&mut findings, ViolationKind::TimeSlice, checks, current * 500 * MS)
    };
    // Three parts of the groups, each read in every third check. They are changed after check 5.
    assert!(
        ![(3, 6), (3, 6), (4, 7), (5, 8)]
            .map(|(before, current)| is_repeated(before, current))
            .contains(&true)
    );
    assert!(is_repeated(6, 9), "the first part was changed again");
    assert!(!is_repeated(7, 10), "the second part may have been changed at the same time");
    assert!(is_repeated(9, 12));
}

/// A manager has up to 1,024 groups, of which one round of checks takes 16 s.
#[test]
fn slice_that_is_changed_again_is_a_repetition_also_if_a_round_takes_longer_than_ten_seconds() {
    let mut findings = BTreeMap::new();
    let mut is_repeated = |before, current, at_ms| {
        let checks = Some(Checks { current, before });
        is_repeated(&mut findings, ViolationKind::TimeSlice, checks, at_ms * MS)
    };
    assert!(!is_repeated(40, 72, 100_000));
    assert!(is_repeated(72, 104, 116_000));
    assert!(!is_repeated(136, 168, 149_000), "more than two rounds later");
}
