//! Two processes of a client that have one open file of the driver.

use super::fixture::Fixture;
use sluice_comm::Channel;

const PARENT: (i32, u64) = (10, 7);
const CHILD: (i32, u64) = (11, 7);

/// A group of it that is still being released is no group by which it can be scheduled.
#[test]
fn child_whose_last_group_its_parent_announces_is_scheduled_by_token() {
    let mut manager = Fixture::new();
    manager.find(CHILD, &[1, 2]);
    let child = manager.processes.find(CHILD).unwrap();
    manager.make_controls();
    manager.find(CHILD, &[1]);
    assert_eq!(manager.groups(child), [1]);
    let (parent, _) = manager.attach(PARENT, &[1]);
    assert_eq!((manager.groups(parent), manager.groups(child)), (vec![1], vec![]));
    assert!(manager.processes.has_groups_of(child), "its other group is still being released");
    assert!(!manager.processes.scheduler.is_observed(child));
}

/// The parent's groups are released after a delay. Its child could otherwise use them freely until it is inspected again, for seconds.
#[test]
fn child_has_the_groups_of_its_departed_parent_while_these_are_still_being_released() {
    let mut manager = Fixture::new();
    let (parent, connection) = manager.attach(PARENT, &[1]);
    manager.make_controls();
    manager.close(parent, Channel::Token, connection);
    manager.forget(parent);
    assert!(manager.processes.has_groups_of(parent), "they are still being released");
    manager.find(CHILD, &[1]);
    let child = manager.processes.find(CHILD).expect("the child is scheduled");
    assert_eq!(manager.groups(child), [1]);
    assert!(!manager.processes.has_groups_of(parent), "the group has one number, and is released no longer");
}
