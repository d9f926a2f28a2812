//! Enabling, disabling and destroying: repeatedly, and at unfavourable moments.

use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::outcome::Error;

use crate::rig::{ASYNC, BLOCKING, SYNC, TestRig, config};

#[test]
fn engine_calls_return_the_reason_of_a_failure() {
    let rig = TestRig::new();
    let queue = rig.stream(1, BLOCKING);
    assert_eq!(rig.preempt(&queue, SYNC), Err(Error::NotEnabled));
    assert_eq!(rig.engine.restore(&queue), Err(Error::NotEnabled));
    assert_eq!(rig.engine.disable(&queue), Err(Error::NotEnabled));
    for bad in [
        Config { queue_size: 4, batch_size: 5, ..Config::default() },
        Config { queue_size: 0, batch_size: 0, ..Config::default() },
        Config { batch_size: 0, ..Config::default() },
    ] {
        assert_eq!(rig.engine.enable(&queue, bad), Err(Error::InvalidConfig), "{bad:?}");
    }
    rig.engine.enable(&queue, config(PreemptionLevel::Host)).unwrap();
    assert_eq!(rig.engine.enable(&queue, config(PreemptionLevel::Host)), Err(Error::AlreadyEnabled));
    rig.engine.enable(&queue, Config { queue_size: 64, ..config(PreemptionLevel::Host) }).unwrap();
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    rig.engine.destroy_stream(&queue).unwrap();
    assert_eq!(rig.preempt(&queue, SYNC), Err(Error::Closing));
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.preempt(&queue, SYNC), Err(Error::InvalidStream));
}

#[test]
fn disabling_a_preempted_stream_submits_in_order_and_leaves_it_running() {
    for level in [PreemptionLevel::Host, PreemptionLevel::Device] {
        let rig = TestRig::new();
        let queue = rig.queue(BLOCKING, level);
        (0..5).for_each(|tag| rig.launch_tagged(&queue, tag));
        rig.preempt(&queue, ASYNC).unwrap();
        (5..1000).for_each(|tag| rig.launch_tagged(&queue, tag));
        rig.engine.disable(&queue).unwrap();
        assert_eq!((rig.engine.pending_commands(&queue), rig.submitted(&queue)), (0, 1000));
        rig.launch_tagged(&queue, 1000);
        assert_eq!(rig.submitted(&queue), 1001);
        rig.run_to_completion();
        assert_eq!(rig.executed(&queue), (0..1001).collect::<Vec<_>>());
    }
}

#[test]
fn stream_enabled_and_disabled_a_hundred_thousand_times_runs_everything_in_order() {
    let rig = TestRig::new();
    let queue = rig.stream(1, BLOCKING);
    for round in 0..100_000u64 {
        rig.engine.enable(&queue, config(PreemptionLevel::Device)).unwrap();
        if round % 1000 == 0 {
            rig.preempt(&queue, ASYNC).unwrap();
            rig.launch_tagged(&queue, round);
        }
        rig.engine.disable(&queue).unwrap();
    }
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..100).map(|n| n * 1000).collect::<Vec<_>>());
    assert_eq!(rig.engine.queue_count(), 1);
}

#[test]
fn ten_thousand_streams_destroyed_while_preempted_leave_nothing_behind() {
    let rig = TestRig::new();
    for round in 0..10_000 {
        let queue = rig.queue(BLOCKING, PreemptionLevel::Host);
        let event = rig.event();
        // A whole batch, so that the engine records a mark.
        (0..8).for_each(|tag| rig.launch_tagged(&queue, tag));
        rig.preempt(&queue, ASYNC).unwrap();
        rig.launch_tagged(&queue, round);
        rig.engine.record(&queue, event).unwrap();
        rig.engine.wait(&queue, event).unwrap();
        rig.engine.destroy_event(event).unwrap();
        rig.engine.destroy_stream(&queue).unwrap();
        rig.restore(&queue);
        rig.engine.dispatch();
        rig.gpu.advance(10_000);
        assert_eq!(rig.executed(&queue).len(), 9);
        // The fake GPU keeps its own records of destroyed objects.
        let mut state = rig.gpu.state();
        state.streams.clear();
        state.executed.clear();
        state.submitted.clear();
    }
    assert_eq!((rig.engine.queue_count(), rig.engine.generation_count()), (0, 0));
    assert_eq!(rig.gpu.state().events.len(), 0, "events of the engine remain");
}

#[test]
fn end_of_a_context_restores_its_streams_and_forgets_them() {
    let rig = TestRig::new();
    let (mine, other) = (rig.queue(BLOCKING, PreemptionLevel::Device), rig.stream(2, BLOCKING));
    rig.engine.enable(&other, config(PreemptionLevel::Host)).unwrap();
    for queue in [&mine, &other] {
        rig.preempt(queue, ASYNC).unwrap();
        (0..3).for_each(|tag| rig.launch_tagged(queue, tag));
    }
    rig.end_context(1);
    rig.gpu.finish();
    assert_eq!(rig.executed(&mine), [0, 1, 2]);
    assert_eq!((rig.engine.queue_count(), rig.engine.pending_commands(&other)), (1, 3));
    assert!(rig.engine.state(&other).unwrap().is_under_preemption());
}
