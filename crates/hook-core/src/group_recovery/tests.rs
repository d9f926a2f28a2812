use std::cell::{Cell, RefCell};

use super::*;

/// A driver with two groups, which records the controls.
#[derive(Debug, Default)]
struct Groups {
    calls: RefCell<Vec<(&'static str, usize)>>,
    /// Outcomes of slices and of enabling, by group.
    slice: [Cell<Option<RecoveryError>>; 2],
    enable: [Cell<Option<RecoveryError>>; 2],
}

#[derive(Debug)]
struct Group<'d>(&'d Groups, usize);

impl OwnGroup for Group<'_> {
    fn restore_slice(&self) -> Result<(), RecoveryError> {
        self.0.calls.borrow_mut().push(("slice", self.1));
        self.0.slice[self.1].get().map_or(Ok(()), Err)
    }

    fn enable(&self) -> Result<(), RecoveryError> {
        self.0.calls.borrow_mut().push(("enable", self.1));
        self.0.enable[self.1].get().map_or(Ok(()), Err)
    }
}

fn recovery(groups: &Groups) -> Recovery<Group<'_>> {
    Recovery::new(vec![Group(groups, 0), Group(groups, 1)])
}

#[test]
fn slices_of_all_groups_are_restored_before_any_group_is_enabled() {
    let groups = Groups::default();
    let mut recovery = recovery(&groups);
    assert_eq!(recovery.round(), None);
    assert_eq!(*groups.calls.borrow(), [("slice", 0), ("slice", 1), ("enable", 0), ("enable", 1)]);
    assert_eq!(recovery.progress(), (2, 0));
}

#[test]
fn group_with_a_failed_slice_stays_disabled_until_the_slice_is_restored() {
    let groups = Groups::default();
    groups.slice[1].set(Some(RecoveryError::Failed));
    let mut recovery = recovery(&groups);
    assert_eq!(recovery.round(), Some(1));
    assert_eq!(*groups.calls.borrow(), [("slice", 0), ("slice", 1), ("enable", 0)]);
    groups.calls.borrow_mut().clear();
    groups.slice[1].set(None);
    assert_eq!(recovery.round(), None);
    assert_eq!(*groups.calls.borrow(), [("slice", 1), ("enable", 1)]);
}

#[test]
fn group_whose_slice_cannot_be_restored_is_enabled_after_a_second() {
    let groups = Groups::default();
    groups.slice[1].set(Some(RecoveryError::Failed));
    let mut recovery = recovery(&groups);
    let paused_ms: u64 = (0..4).filter_map(|_| recovery.round()).sum();
    assert_eq!(paused_ms, 1111);
    assert!(!groups.calls.borrow().contains(&("enable", 1)));
    recovery.round();
    assert!(groups.calls.borrow().contains(&("enable", 1)));
}

#[test]
fn failed_control_is_repeated_for_ever_with_growing_pauses() {
    let groups = Groups::default();
    groups.enable[0].set(Some(RecoveryError::Failed));
    let mut recovery = recovery(&groups);
    let pauses: Vec<_> = (0..8).map(|_| recovery.round()).collect();
    assert_eq!(pauses, [1, 10, 100, 1000, 5000, 5000, 5000, 5000].map(Some));
    assert_eq!(recovery.progress(), (1, 1));
    groups.enable[0].set(None);
    assert_eq!(recovery.round(), None);
}

#[test]
fn group_that_exists_no_more_is_forgotten() {
    let groups = Groups::default();
    groups.slice[0].set(Some(RecoveryError::Gone));
    groups.enable[1].set(Some(RecoveryError::Gone));
    assert_eq!(recovery(&groups).round(), None);
    assert_eq!(*groups.calls.borrow(), [("slice", 0), ("slice", 1), ("enable", 1)]);
}
