use super::*;

const CHECKS: Checks = Checks { current: 2, before: 1 };

const GROUP: GroupId = GroupId(1);

#[test]
fn only_a_longer_slice_is_a_finding() {
    assert_eq!(compare_slice(GROUP, 2048, 2048, CHECKS), None);
    assert_eq!(compare_slice(GROUP, 1, 2048, CHECKS), None, "a shorter slice takes no time from others");
    assert_eq!(compare_slice(GROUP, 1_000, 1, CHECKS), None, "the driver's shortest slice");
    let finding = compare_slice(GROUP, 1_000_000, 1, CHECKS).unwrap();
    assert_eq!(finding.kind, ViolationKind::TimeSlice);
    assert!(finding.what.contains("1000000"), "{}", finding.what);
    assert!(compare_slice(GROUP, 1_000_000, 2048, CHECKS).is_some());
}

#[test]
fn checks_read_back_a_bounded_number_of_groups_and_take_turns() {
    let groups = || (1..=70).rev().map(GroupId);
    let mut last = GroupId(0);
    let mut read = Vec::new();
    for _ in 0..3 {
        let round = next_in_turn(groups(), last);
        assert!(round.len() <= SLICES_PER_CHECK);
        last = *round.last().unwrap();
        read.extend(round);
    }
    let all: Vec<GroupId> = (1..=70).map(GroupId).collect();
    assert_eq!(read[..70], all);
    assert_eq!(next_in_turn([GROUP].into_iter(), GROUP), [GROUP], "one group is read each time");
}

#[test]
fn switches_of_a_disabled_group_are_a_finding_unless_they_are_late() {
    let mut groups = DisabledGroups::new();
    groups.disabled(GROUP, || Some(100));
    assert!(groups.watched().contains(&GROUP));
    assert_eq!(groups.compare(GROUP, 101), None);
    let finding = groups.compare(GROUP, 113).unwrap();
    assert_eq!(finding.kind, ViolationKind::StoppedGroupRan);
    assert!(finding.what.contains("12 times"), "{}", finding.what);
    groups.forget(GROUP, false);
    assert_eq!(groups.compare(GROUP, 200), None, "it is enabled");
    groups.disabled(GROUP, || Some(200));
    assert!(!groups.watched().contains(&GROUP), "a group is watched once in half a second");
}

#[test]
fn group_that_ran_between_two_times_in_which_it_was_disabled_is_no_finding() {
    let mut groups = DisabledGroups::new();
    groups.disabled(GROUP, || Some(100));
    groups.disabled(GROUP, || Some(200));
    assert_eq!(groups.compare(GROUP, 201), None);
}
