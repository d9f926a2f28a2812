use super::*;

fn created(handle: u64) -> Stream {
    Stream::new(handle, false, 1)
}

#[test]
fn a_launch_after_the_wait_began_keeps_the_stream_dirty() {
    let mut set = StreamSet::default();
    set.note(7, created(100), true, 1);
    set.note(7, created(100), true, 2);
    set.finished(WaitTarget::Stream(7, created(100)), 2);
    assert!(set.any_dirty(), "the launch of epoch 2 came after the wait of epoch 2 began");
    set.finished(WaitTarget::Stream(7, created(100)), 3);
    assert!(!set.any_dirty());
}

#[test]
fn a_wait_for_the_legacy_stream_leaves_out_streams_that_do_not_block_it() {
    let mut set = StreamSet::default();
    set.note(7, created(100), true, 1);
    set.note(7, created(101), false, 1);
    set.note(7, created(0), true, 1);
    set.finished(WaitTarget::Legacy(7), 2);
    let dirty: Vec<u64> = set.all().iter().filter(|u| u.is_dirty()).map(|u| u.stream.handle).collect();
    assert_eq!(dirty, [101]);
}

#[test]
fn contexts_are_dirty_at_the_same_time_only_while_the_work_of_both_is_not_known_to_have_finished() {
    let mut set = StreamSet::default();
    set.note(7, created(100), true, 1);
    set.note(7, created(101), true, 1);
    assert!(!set.has_dirty_contexts(), "two streams of one context");
    set.note(8, created(102), true, 1);
    assert!(set.has_dirty_contexts());
    set.finished(WaitTarget::Created(created(102)), 2);
    assert!(!set.has_dirty_contexts());
}

#[test]
fn wait_for_one_context_leaves_other_contexts_dirty() {
    let mut set = StreamSet::default();
    set.note(7, created(0), true, 1);
    set.note(8, created(0), true, 1);
    set.finished(WaitTarget::Context(7), 2);
    assert!(set.any_dirty());
    set.remove_context(8);
    assert!(!set.any_dirty());
}

#[test]
fn noted_stream_is_located_until_it_is_destroyed() {
    let mut set = StreamSet::default();
    set.note(7, created(100), false, 1);
    set.note(7, created(0), true, 1);
    set.finished(WaitTarget::Created(created(100)), 2);
    assert_eq!(set.located(created(100)), Some(StreamLocation { context: 7, blocking: false }));
    assert_eq!(set.located(created(0)), None, "the current context determines the default stream");
    set.remove(created(100));
    assert_eq!(set.located(created(100)), None);
    set.note(8, created(100), true, 3);
    assert_eq!(
        set.located(created(100)),
        Some(StreamLocation { context: 8, blocking: true }),
        "another of that handle"
    );
    set.remove_context(8);
    assert_eq!(set.located(created(100)), None);
}

#[test]
fn wait_for_a_created_stream_needs_no_context() {
    let mut set = StreamSet::default();
    set.note(7, created(100), true, 1);
    set.note(8, created(101), true, 1);
    set.finished(WaitTarget::Created(created(100)), 2);
    let dirty: Vec<u64> = set.all().iter().filter(|u| u.is_dirty()).map(|u| u.stream.handle).collect();
    assert_eq!(dirty, [101]);
}

#[test]
fn default_streams_of_threads_do_not_accumulate() {
    let mut set = StreamSet::default();
    for thread in 1..100 {
        set.note(7, Stream::new(2, false, thread), true, u64::from(thread));
        set.finished(WaitTarget::Context(7), u64::from(thread) + 1);
    }
    set.note(7, Stream::new(2, false, 100), true, 100);
    assert_eq!(set.all().len(), 1);
}

#[test]
fn default_streams_of_two_threads_are_two_streams() {
    let (one, two) = (Stream::new(0, true, 1), Stream::new(2, false, 2));
    assert_ne!(one, two);
    assert_eq!(one, Stream::new(2, false, 1));
    assert_eq!(one.driver_handle(), 2);
    assert_eq!(Stream::new(0, false, 1), Stream::new(1, true, 1));
}

#[test]
fn noting_a_stream_after_a_drain_does_not_allocate() {
    let mut set = StreamSet::default();
    (100..200).for_each(|handle| set.note(7, created(handle), true, 1));
    let capacity = set.streams.capacity();
    assert_eq!(set.take().len(), 100);
    assert!(set.all().is_empty());
    assert_eq!(set.streams.capacity(), capacity);
}
