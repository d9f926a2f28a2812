use super::*;

#[test]
fn event_is_used_again_in_its_context_only() {
    let mut pool = EventPool::new();
    let mark = pool.add(1, 100);
    assert_eq!(pool.put_back(mark), Returned::Kept);
    assert_eq!(pool.take(2), None);
    assert_eq!(pool.take(1), Some(mark));
    assert_eq!(pool.take(1), None);
}

#[test]
fn event_that_is_put_back_after_its_context_ended_is_not_used_in_a_context_with_the_same_handle() {
    let mut pool = EventPool::new();
    let dead = pool.add(1, 100);
    pool.forget_context(1);
    // The driver gives both handles to new objects.
    let alive = pool.add(1, 100);
    assert!(!pool.exists(dead) && pool.exists(alive));
    assert_eq!(pool.put_back(dead), Returned::Ended);
    assert_eq!(pool.take(1), None);
    assert_eq!(pool.put_back(alive), Returned::Kept);
}

#[test]
fn surplus_event_is_left_to_the_caller() {
    let mut pool = EventPool::new();
    let marks: Vec<_> = (0..=MAX_FREE as u64).map(|event| pool.add(1, event)).collect();
    let kept = marks.iter().filter(|mark| pool.put_back(**mark) == Returned::Kept).count();
    assert_eq!(kept, MAX_FREE);
    assert!(!pool.exists(marks[MAX_FREE]));
}
