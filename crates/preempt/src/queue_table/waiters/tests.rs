use super::*;

#[test]
fn submitted_operation_wakes_only_threads_that_wait_for_it() {
    let mut waiters = Waiters::default();
    let (mine, other) = (QueueId(1), QueueId(2));
    waiters.enter(Some((mine, 3)));
    assert!(!waiters.is_satisfied(mine, Some(2)) && !waiters.is_satisfied(other, Some(9)));
    assert!(waiters.is_satisfied(mine, Some(3)) && waiters.is_satisfied(mine, None));
    waiters.enter(None);
    assert!(
        waiters.is_satisfied(other, Some(0)),
        "a thread that waits for any change is woken for every operation"
    );
    waiters.leave(None);
    waiters.leave(Some((mine, 3)));
    assert!(!waiters.is_satisfied(mine, Some(3)) && waiters.count() == 0);
}
