//! Streams that end while other threads are at work.

use std::sync::Arc;

use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::ids::Stream;
use sluice_preempt::outcome::Notice;
use sluice_preempt::queue::Queue;

use crate::gpu::{CallPoint, Effect};
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, TestRig, config};

const MS: u64 = 1_000_000;

/// A stream that is looked at for idleness, with a kernel that is done by the next look.
fn watched(rig: &TestRig) -> Arc<Queue> {
    let queue = rig.stream(1, NON_BLOCKING);
    let timeout = Config { task_timeout_ns: Some(MS), ..config(PreemptionLevel::Host) };
    rig.engine.enable(&queue, timeout).unwrap();
    rig.launch(&queue, Effect::Nothing, 100_000, 1).unwrap();
    queue
}

/// Destroys `queue` while another thread does this, once the driver's stream is gone.
fn destroy(rig: &TestRig, queue: &Queue, then: impl FnOnce(&TestRig) + Send + 'static) {
    let other = rig.clone();
    rig.gpu.run_during(CallPoint::Destroy, move || then(&other));
    rig.engine.destroy_stream(queue).unwrap();
    assert!(rig.gpu.was_interrupted(CallPoint::Destroy), "nothing was destroyed");
}

#[test]
fn the_worker_does_not_look_for_idleness_at_a_stream_that_has_just_been_destroyed() {
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
fn looks_at_several_streams_are_taken_one_by_one_so_that_one_may_end_meanwhile() {
    let rig = TestRig::new();
    let queues = [watched(&rig), watched(&rig)];
    rig.engine.dispatch();
    rig.gpu.advance(MS);
    // While the worker asks about the first one the program destroys the other.
    let (other, second) = (rig.clone(), Arc::clone(&queues[1]));
    rig.gpu.run_during(CallPoint::Query, move || {
        other.engine.destroy_stream(&second).unwrap();
        assert!(other.gpu.state().streams[&second.stream().handle].destroyed, "it waits for nobody");
    });
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Query), "nobody asked");
    assert_eq!(rig.engine.queue_count(), 1);
}

#[test]
fn a_program_that_is_told_of_an_idle_stream_may_end_the_context_there_and_then() {
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
fn a_destroyed_stream_opens_no_gates_of_the_one_that_has_its_handle_now() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    rig.launch_tagged(&queue, 100);
    rig.run_to_completion();
    let stream: Stream = queue.stream();
    let former = Arc::clone(&queue);
    destroy(&rig, &queue, move |rig| {
        rig.gpu.create_again(stream);
        rig.gpu.state().executed.clear();
        assert!(!rig.engine.is_handle_current(&former), "the handle means another stream by now");
        let queue = rig.engine.queue(stream);
        rig.engine.enable(&queue, config(PreemptionLevel::Device)).unwrap();
        (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
        rig.gpu.advance(150_000);
        rig.preempt(&queue, ASYNC).unwrap();
        rig.gpu.advance(MS);
        assert_eq!(rig.executed(&queue), [0, 1]);
        // Something that may need what is behind gates.
        rig.stream(1, BLOCKING);
        rig.gpu.advance(MS);
        assert_eq!(rig.executed(&queue), [0, 1], "it went on though it is preempted");
    });
    assert_eq!(rig.engine.queue_count(), 2);
}
