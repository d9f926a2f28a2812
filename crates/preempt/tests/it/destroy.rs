//! Streams that are destroyed while other threads work.

use std::sync::Arc;

use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::ids::Stream;
use sluice_preempt::outcome::Notice;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::{CallPoint, Effect};
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, TestRig, config};

const MS: u64 = 1_000_000;

/// A stream that the worker checks for idleness, with a kernel that is done at the next check.
fn watched(rig: &TestRig) -> Arc<Queue> {
    let queue = rig.stream(1, NON_BLOCKING);
    let timeout = Config { task_timeout_ns: Some(MS), ..config(PreemptionLevel::Host) };
    rig.engine.enable(&queue, timeout).unwrap();
    rig.launch(&queue, Effect::Nothing, 100_000, 1).unwrap();
    queue
}

/// Destroys `queue`; another thread runs `then` once the driver's stream is gone.
fn destroy(rig: &TestRig, queue: &Queue, then: impl FnOnce(&TestRig) + Send + 'static) {
    let other = rig.clone();
    rig.gpu.run_during(CallPoint::Destroy, move || then(&other));
    rig.engine.destroy_stream(queue).unwrap();
    assert!(rig.gpu.was_interrupted(CallPoint::Destroy), "the driver destroyed no stream");
}

#[test]
fn worker_does_not_check_a_just_destroyed_stream_for_idleness() {
    let rig = TestRig::new();
    let queue = watched(&rig);
    rig.engine.dispatch();
    rig.gpu.advance(2 * MS);
    destroy(&rig, &queue, |rig| {
        rig.engine.dispatch();
    });
    rig.run_to_completion();
    assert_eq!((rig.gpu.state().events.len(), rig.engine.queue_count()), (0, 0));
}

#[test]
fn idle_checks_use_one_stream_at_a_time_so_that_another_may_be_destroyed() {
    let rig = TestRig::new();
    let queues = [watched(&rig), watched(&rig)];
    rig.engine.dispatch();
    rig.gpu.advance(MS);
    // While the worker queries the first stream, the program destroys the other.
    let (other, second) = (rig.clone(), Arc::clone(&queues[1]));
    rig.gpu.run_during(CallPoint::Query, move || {
        other.engine.destroy_stream(&second).unwrap();
        assert!(
            other.gpu.state().streams[&second.stream().handle].destroyed,
            "the destruction has to return at once"
        );
    });
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Query), "the driver was not asked");
    assert_eq!(rig.engine.queue_count(), 1);
}

#[test]
fn idle_callback_may_end_the_context_of_its_stream() {
    let rig = TestRig::new();
    let queues = [watched(&rig), watched(&rig)];
    let other = rig.clone();
    rig.observer.then.lock().unwrap().0 = Some(Box::new(move || other.end_context(1)));
    rig.gpu.state().max_pauses = Some(100);
    rig.run_to_completion();
    assert_eq!(rig.observer.all(), [Notice::Idle(queues[0].id())]);
    assert_eq!((rig.gpu.state().events.len(), rig.engine.queue_count()), (0, 0));
}

#[test]
fn destroyed_stream_opens_no_gates_of_the_stream_that_reuses_its_handle() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    rig.launch_tagged(&queue, 100);
    rig.run_to_completion();
    let stream: Stream = queue.stream();
    let former = Arc::clone(&queue);
    destroy(&rig, &queue, move |rig| {
        rig.gpu.create_again(stream);
        rig.gpu.state().executed.clear();
        assert!(!rig.engine.is_handle_current(&former), "the handle refers to another stream by now");
        let queue = rig.engine.queue(stream);
        rig.engine.enable(&queue, config(PreemptionLevel::Device)).unwrap();
        (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
        rig.gpu.advance(150_000);
        rig.preempt(&queue, ASYNC).unwrap();
        rig.gpu.advance(MS);
        assert_eq!(rig.executed(&queue), [0, 1]);
        // A stream that may need what is behind gates.
        rig.stream(1, BLOCKING);
        rig.gpu.advance(MS);
        assert_eq!(rig.executed(&queue), [0, 1], "the stream went on although it is preempted");
    });
    assert_eq!(rig.engine.queue_count(), 2);
}
