//! Handles that the engine uses by itself, while other threads destroy their objects.

use std::sync::Arc;

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::Code;
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::{CallPoint, Effect};
use crate::rig::{ASYNC, NON_BLOCKING, SYNC, TestRig};

/// Begins a capture. The functions run after the engine knows of it: one before the driver does, one after.
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

/// A pending command in a queue that was captured before, so that only the check for a capture can delay it.
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

/// A running kernel in a queue whose channel group can be disabled.
fn sliced() -> (TestRig, Arc<Queue>) {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Full);
    rig.launch(&queue, Effect::Nothing, 1_000_000, 1).unwrap();
    (rig, queue)
}

/// Checks that the graph is empty, and that the earlier command runs behind the capture.
fn stays_out(rig: &TestRig, queue: &Queue) {
    assert!(rig.gpu.state().graphs[&1].is_empty(), "an earlier command joined the graph");
    end(rig, queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(queue), [7]);
}

#[test]
fn stream_is_not_destroyed_while_the_worker_checks_whether_its_capture_has_ended() {
    let (rig, queue) = captured_once();
    // The program destroys the stream, and a second thread dispatches.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::Capturing, move || {
        other.engine.destroy_stream(&stream).unwrap();
        other.engine.dispatch();
        other.engine.dispatch();
    });
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Capturing), "the driver was not asked");
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![7], 0));
}

#[test]
fn nothing_is_submitted_between_the_engines_and_the_drivers_begin_of_a_capture() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 7);
    rig.restore(&queue);
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    begin(
        &rig,
        &queue,
        // The driver does not know of the capture yet: a submission now could fall into the middle of its beginning.
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
fn outdated_answer_about_a_capture_does_not_release_the_queue() {
    let (rig, queue) = captured_once();
    // The driver has determined that there is no capture, and has not returned yet, when the next capture begins.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::Capturing, move || begin(&other, &stream, || {}, || {}));
    rig.engine.dispatch();
    assert!(rig.gpu.was_interrupted(CallPoint::Capturing), "the driver was not asked");
    stays_out(&rig, &queue);
}

#[test]
fn stream_is_not_destroyed_while_its_channel_group_is_enabled() {
    let (rig, queue) = sliced();
    assert_eq!(rig.preempt(&queue, ASYNC).unwrap().level, PreemptionLevel::Full);
    // In between, the stream is preempted and restored once more, without waiting for the control in progress, and
    // destroyed.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.run_during(CallPoint::EnableGroup, move || {
        let level = Some(PreemptionLevel::Host);
        other.preempt(&stream, Request { level, ..ASYNC }).unwrap();
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
    });
    rig.restore(&queue);
    assert!(rig.gpu.was_interrupted(CallPoint::EnableGroup), "the channel group was not enabled");
    rig.run_to_completion();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![1], 0));
}

#[test]
fn stream_is_not_destroyed_while_its_channel_group_is_disabled() {
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
