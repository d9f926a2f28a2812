//! Handles that the engine uses by itself, while other threads end what they stand for.

use std::sync::Arc;

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::Code;
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use crate::gpu::{CallPoint, Effect};
use crate::rig::{ASYNC, NON_BLOCKING, SYNC, TestRig};

/// Begins a capture, in the middle of which this happens: after the engine has been told, before or after the driver is.
fn begin(rig: &TestRig, queue: &Queue, before: impl FnOnce(), after: impl FnOnce()) {
    let now = || {
        before();
        {
            let mut state = rig.gpu.state();
            state.graphs.insert(1, Vec::new());
            state.streams.get_mut(&queue.stream().handle).unwrap().capture = Some(1);
        }
        after();
        Ok::<(), Code>(())
    };
    rig.engine.begin_capture(queue, now).unwrap();
}

fn end(rig: &TestRig, queue: &Queue) {
    rig.gpu.state().streams.get_mut(&queue.stream().handle).unwrap().capture = None;
    rig.engine.end_capture();
}

/// A command waits in the queue, and what might keep it there is a capture that has ended.
fn captured_once() -> (TestRig, Arc<Queue>) {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 7);
    begin(&rig, &queue, || {}, || {});
    end(&rig, &queue);
    rig.restore(&queue);
    (rig, queue)
}

/// A kernel runs in a queue that slices can stop.
fn sliced() -> (TestRig, Arc<Queue>) {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Full);
    rig.launch(&queue, Effect::Nothing, 1_000_000, 1).unwrap();
    (rig, queue)
}

/// Nothing of the capture's is in its graph, and what was called before it runs behind it.
fn stays_out(rig: &TestRig, queue: &Queue) {
    assert!(rig.gpu.state().graphs[&1].is_empty(), "what was called before is in the graph");
    end(rig, queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(queue), [7]);
}

#[test]
fn a_stream_is_not_destroyed_while_the_worker_asks_whether_its_capture_has_ended() {
    let (rig, queue) = captured_once();
    // The program destroys the stream, and a second thread hands over what waits.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::Capturing, move || {
        other.engine.destroy_stream(&stream).unwrap();
        other.engine.dispatch();
        other.engine.dispatch();
    });
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Capturing), "nobody asked");
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![7], 0));
}

#[test]
fn nothing_is_handed_over_between_the_engines_word_and_the_drivers_that_a_capture_begins() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 7);
    rig.restore(&queue);
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    begin(
        &rig,
        &queue,
        // The driver does not know of the capture yet: what went to it now could be in the middle of its beginning.
        || {
            other.engine.dispatch();
        },
        || {
            other.engine.dispatch();
            assert_eq!(other.submitted(&stream), 0);
        },
    );
    rig.engine.dispatch();
    stays_out(&rig, &queue);
}

#[test]
fn an_answer_from_before_a_capture_began_does_not_let_the_queue_go_on() {
    let (rig, queue) = captured_once();
    // The driver has said that there is no capture, and has not come back with it, when the next one begins.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::Capturing, move || begin(&other, &stream, || {}, || {}));
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Capturing), "nobody asked");
    stays_out(&rig, &queue);
}

#[test]
fn a_stream_is_not_destroyed_while_the_gpu_is_given_back_to_it() {
    let (rig, queue) = sliced();
    assert_eq!(rig.preempt(&queue, ASYNC).unwrap().level, PreemptionLevel::Full);
    // Interruption it is preempted and restored once more, which need not wait for the control that is under way, and destroyed.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::EnableGroup, move || {
        let level = Some(PreemptionLevel::Host);
        other.preempt(&stream, Request { level, ..ASYNC }).unwrap();
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
    });
    rig.restore(&queue);
    assert!(rig.gpu.was_interrupted(CallPoint::EnableGroup), "it was not given back");
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![1], 0));
}

#[test]
fn a_stream_is_not_destroyed_while_the_gpu_is_taken_from_it() {
    let (rig, queue) = sliced();
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::DisableGroup, move || {
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
    });
    assert_eq!(rig.preempt(&queue, ASYNC), Err(Error::InvalidState));
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![1], 0));
}
