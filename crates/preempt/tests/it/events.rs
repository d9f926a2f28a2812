//! An event refers to its latest record at the time of the call, however late that record is submitted.

use std::sync::Arc;

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::ids::{Code, Event};
use sluice_preempt::queue::Queue;

use crate::fake_gpu::Effect;
use crate::rig::{ASYNC, NON_BLOCKING, SYNC, TestRig};

fn streams(rig: &TestRig) -> (Arc<Queue>, Arc<Queue>, Event) {
    let queue = || rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    (queue(), queue(), rig.event())
}

#[test]
fn event_without_a_record_counts_as_reached_and_delays_no_stream() {
    let rig = TestRig::new();
    let (_, waiting, event) = streams(&rig);
    assert_eq!(rig.engine.query_event(event), Ok(()));
    rig.preempt(&waiting, ASYNC).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch_tagged(&waiting, 1);
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!(rig.executed(&waiting), [1]);
}

#[test]
fn event_with_pending_record_is_not_ready_without_a_driver_call() {
    let rig = TestRig::new();
    let (recording, _, event) = streams(&rig);
    let other = rig.event();
    rig.engine.record(&recording, other).unwrap();
    rig.preempt(&recording, SYNC).unwrap();
    rig.engine.record(&recording, event).unwrap();
    let (now, made) = (rig.gpu.now(), rig.gpu.state().made);
    assert_eq!(rig.engine.query_event(event), Err(Code::NOT_READY));
    assert_eq!(rig.engine.elapsed_ns(other, event), Err(Code::NOT_READY));
    assert_eq!(rig.engine.query_stream(&recording), Err(Code::NOT_READY));
    assert_eq!((rig.gpu.now(), rig.gpu.state().made), (now, made));
    rig.restore(&recording);
    rig.run_to_completion();
    assert_eq!(rig.engine.query_event(event), Ok(()));
    assert!(rig.engine.elapsed_ns(other, event).is_ok());
}

#[test]
fn queued_wait_refers_to_the_record_before_it_and_not_to_a_later_one() {
    let rig = TestRig::new();
    let (recording, waiting, event) = streams(&rig);
    rig.engine.record(&recording, event).unwrap();
    rig.preempt(&waiting, ASYNC).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch_tagged(&waiting, 1);
    // Recorded again behind a kernel without end. A wait for the first record must not wait for this one.
    rig.launch(&recording, Effect::Nothing, 1 << 60, 2).unwrap();
    rig.engine.record(&recording, event).unwrap();
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!(rig.executed(&waiting), [1]);
    assert_eq!(rig.engine.query_event(event), Err(Code::NOT_READY));
}

#[test]
fn wait_called_before_a_record_does_not_refer_to_it() {
    let rig = TestRig::new();
    let (recording, waiting, event) = streams(&rig);
    rig.preempt(&waiting, ASYNC).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch_tagged(&waiting, 1);
    rig.launch(&recording, Effect::Nothing, 1 << 60, 2).unwrap();
    rig.engine.record(&recording, event).unwrap();
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!(rig.executed(&waiting), [1]);
}

#[test]
fn wait_for_a_pending_record_blocks_no_thread_and_keeps_the_order() {
    let rig = TestRig::new();
    let (recording, waiting, event) = streams(&rig);
    for queue in [&recording, &waiting] {
        rig.preempt(queue, ASYNC).unwrap();
    }
    rig.launch(&recording, Effect::Store { to: 1, value: 5 }, 1000, 1).unwrap();
    rig.engine.record(&recording, event).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch(&waiting, Effect::Copy { to: 2, from: 1 }, 1000, 2).unwrap();
    rig.restore(&recording);
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!(rig.gpu.read(2), 5);
}

#[test]
fn event_destroyed_while_its_record_and_a_wait_are_queued_is_still_used_by_both() {
    let rig = TestRig::new();
    let (recording, waiting, event) = streams(&rig);
    rig.preempt(&recording, ASYNC).unwrap();
    rig.preempt(&waiting, ASYNC).unwrap();
    rig.launch(&recording, Effect::Store { to: 1, value: 5 }, 1000, 1).unwrap();
    rig.engine.record(&recording, event).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch(&waiting, Effect::Copy { to: 2, from: 1 }, 1000, 2).unwrap();
    rig.engine.destroy_event(event).unwrap();
    assert_eq!(rig.engine.query_event(event), Err(Code::INVALID_HANDLE));
    assert!(!rig.gpu.state().destroyed_events.contains(&event.0));
    rig.restore(&recording);
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!(rig.gpu.read(2), 5);
    assert!(rig.gpu.state().destroyed_events.contains(&event.0));
    assert_eq!(rig.engine.generation_count(), 0);
}

#[test]
fn elapsed_time_includes_the_time_the_stream_was_stopped() {
    let rig = TestRig::new();
    let (queue, _, before) = streams(&rig);
    let after = rig.event();
    rig.engine.record(&queue, before).unwrap();
    rig.preempt(&queue, SYNC).unwrap();
    rig.engine.record(&queue, after).unwrap();
    rig.gpu.advance(5_000_000);
    rig.restore(&queue);
    rig.run_to_completion();
    assert!(rig.engine.elapsed_ns(before, after).unwrap() >= 5_000_000);
}
