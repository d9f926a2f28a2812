//! Handles that the engine uses by itself, while other threads end what they stand for.

use std::sync::Arc;

use sluice_preempt::config::Level;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::Code;
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use crate::gpu::{During, Effect};
use crate::rig::{ASYNC, NON_BLOCKING, Rig, SYNC};

/// Begins a capture, in the middle of which this happens: after the engine has been told, before or after the driver is.
fn begin(rig: &Rig, queue: &Queue, before: impl FnOnce(), after: impl FnOnce()) {
    let now = || {
        before();
        {
            let mut inside = rig.gpu.inside();
            inside.graphs.insert(1, Vec::new());
            inside.lanes.get_mut(&queue.stream().handle).unwrap().capture = Some(1);
        }
        after();
        Ok::<(), Code>(())
    };
    rig.engine.begin_capture(queue, now).unwrap();
}

fn end(rig: &Rig, queue: &Queue) {
    rig.gpu.inside().lanes.get_mut(&queue.stream().handle).unwrap().capture = None;
    rig.engine.end_capture();
}

/// A command waits in the queue, and what might keep it there is a capture that has ended.
fn captured_once() -> (Rig, Arc<Queue>) {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.tag(&queue, 7);
    begin(&rig, &queue, || {}, || {});
    end(&rig, &queue);
    rig.restore(&queue);
    (rig, queue)
}

/// A kernel runs in a queue that slices can stop.
fn sliced() -> (Rig, Arc<Queue>) {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, Level::Full);
    rig.launch(&queue, Effect::Nothing, 1_000_000, 1).unwrap();
    (rig, queue)
}

/// Nothing of the capture's is in its graph, and what was called before it runs behind it.
fn stays_out(rig: &Rig, queue: &Queue) {
    assert!(rig.gpu.inside().graphs[&1].is_empty(), "what was called before is in the graph");
    end(rig, queue);
    rig.settle();
    assert_eq!(rig.ran(queue), [7]);
}

#[test]
fn a_stream_is_not_destroyed_while_the_worker_asks_whether_its_capture_has_ended() {
    let (rig, queue) = captured_once();
    // The program destroys the stream, and a second thread hands over what waits.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.during(During::Capturing, move || {
        other.engine.destroy_stream(&stream).unwrap();
        other.engine.pump();
        other.engine.pump();
    });
    rig.engine.pump();
    assert!(rig.gpu.was_there(During::Capturing), "nobody asked");
    rig.settle();
    assert_eq!((rig.ran(&queue), rig.engine.queues()), (vec![7], 0));
}

#[test]
fn nothing_is_handed_over_between_the_engines_word_and_the_drivers_that_a_capture_begins() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.tag(&queue, 7);
    rig.restore(&queue);
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    begin(
        &rig,
        &queue,
        // The driver does not know of the capture yet: what went to it now could be in the middle of its beginning.
        || {
            other.engine.pump();
        },
        || {
            other.engine.pump();
            assert_eq!(other.submitted(&stream), 0);
        },
    );
    rig.engine.pump();
    stays_out(&rig, &queue);
}

#[test]
fn an_answer_from_before_a_capture_began_does_not_let_the_queue_go_on() {
    let (rig, queue) = captured_once();
    // The driver has said that there is no capture, and has not come back with it, when the next one begins.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.during(During::Capturing, move || begin(&other, &stream, || {}, || {}));
    rig.engine.pump();
    assert!(rig.gpu.was_there(During::Capturing), "nobody asked");
    stays_out(&rig, &queue);
}

#[test]
fn a_stream_is_not_destroyed_while_the_gpu_is_given_back_to_it() {
    let (rig, queue) = sliced();
    assert_eq!(rig.preempt(&queue, ASYNC).unwrap().level, Level::Full);
    // Meanwhile it is preempted and restored once more, which need not wait for the control that is under way, and destroyed.
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.during(During::Release, move || {
        let level = Some(Level::Host);
        other.preempt(&stream, Request { level, ..ASYNC }).unwrap();
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
    });
    rig.restore(&queue);
    assert!(rig.gpu.was_there(During::Release), "it was not given back");
    rig.settle();
    assert_eq!((rig.ran(&queue), rig.engine.queues()), (vec![1], 0));
}

#[test]
fn a_stream_is_not_destroyed_while_the_gpu_is_taken_from_it() {
    let (rig, queue) = sliced();
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    rig.gpu.during(During::Hold, move || {
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
    });
    assert_eq!(rig.preempt(&queue, ASYNC), Err(Error::InvalidState));
    rig.settle();
    assert_eq!((rig.ran(&queue), rig.engine.queues()), (vec![1], 0));
}
