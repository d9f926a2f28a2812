//! Calls that wait for all work of a context return although streams of it are preempted.

use std::sync::Arc;

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::ids::Context;
use sluice_preempt::queue::Queue;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::{CallPoint, Effect, FakeGpu};
use crate::rig::{ASYNC, NON_BLOCKING, SYNC, TestRig, config};

/// Eight kernels; the second one runs.
fn busy(rig: &TestRig, level: PreemptionLevel) -> Arc<Queue> {
    let queue = rig.queue(NON_BLOCKING, level);
    (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(150_000);
    queue
}

fn is_idle(gpu: &FakeGpu, queue: &Queue) -> bool {
    gpu.state().streams[&queue.stream().handle].ops.is_empty()
}

#[test]
fn yielding_stream_completes_what_the_driver_has_and_nothing_more() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Device);
    rig.launch_tagged(&queue, 8);
    rig.engine.begin_module_load(queue.stream().context);
    assert_eq!(
        rig.engine.state(&queue),
        Some(StreamState::Preempting),
        "the second kernel runs and six are behind it"
    );
    rig.run_to_completion();
    assert!(is_idle(&rig.gpu, &queue), "a call that waits for the context waits for a gate");
    assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Preempted));
    rig.engine.end_module_load(queue.stream().context);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue).len(), 8, "the stream is still preempted");
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..9).collect::<Vec<_>>());
}

#[test]
fn preempt_during_a_load_reports_level_host_and_waits_for_submitted_work() {
    for level in [PreemptionLevel::Device, PreemptionLevel::Full] {
        let rig = TestRig::new();
        rig.gpu.state().channel_groups = Some(Ok(()));
        let queue = busy(&rig, level);
        rig.engine.begin_module_load(queue.stream().context);
        let achieved = rig.preempt(&queue, SYNC).unwrap();
        assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Host, true));
        assert_eq!(rig.executed(&queue).len(), 8);
        rig.restore(&queue);
        rig.engine.end_module_load(queue.stream().context);
        (8..16).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
        rig.gpu.advance(150_000);
        assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, level, "the load has ended");
        rig.gpu.finish();
        assert!(rig.executed(&queue).len() < 16);
    }
}

#[test]
fn synchronous_preempt_during_a_load_waits_for_the_stop_that_follows() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    rig.preempt(&queue, SYNC).unwrap();
    rig.engine.begin_module_load(queue.stream().context);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Host, true));
    assert_eq!(rig.executed(&queue).len(), 8);
}

#[test]
fn gates_stop_the_remaining_work_after_the_load() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    rig.preempt(&queue, SYNC).unwrap();
    rig.engine.begin_module_load(queue.stream().context);
    rig.engine.end_module_load(queue.stream().context);
    rig.gpu.advance(100_000);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Device);
    rig.gpu.finish();
    let ran = rig.executed(&queue).len();
    assert!((2..6).contains(&ran), "{ran} kernels");
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn stream_stopped_at_level_full_goes_on_during_a_load() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = busy(&rig, PreemptionLevel::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Full);
    rig.engine.begin_module_load(queue.stream().context);
    rig.run_to_completion();
    assert!(is_idle(&rig.gpu, &queue));
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Host);
}

#[test]
fn without_gates_no_channel_group_is_disabled_during_a_load() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    rig.gpu.state().gates = false;
    let queue = busy(&rig, PreemptionLevel::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Full);
    rig.engine.begin_module_load(queue.stream().context);
    rig.gpu.finish();
    assert!(is_idle(&rig.gpu, &queue));
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Host);
}

#[test]
fn stream_that_yields_during_a_synchronous_preempt_has_stopped_when_its_work_is_done() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    let other = rig.clone();
    rig.gpu.run_during(CallPoint::Query, move || other.engine.begin_module_load(Context(1)));
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert!(rig.gpu.was_interrupted(CallPoint::Query));
    assert_eq!(
        (achieved.level, achieved.stopped, rig.executed(&queue).len()),
        (PreemptionLevel::Host, true, 8)
    );
}

#[test]
fn streams_of_other_contexts_stay_stopped() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    rig.preempt(&queue, SYNC).unwrap();
    let ran = rig.executed(&queue);
    rig.engine.begin_module_load(Context(99));
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), ran);
    rig.engine.begin_module_load(queue.stream().context);
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue).len(), 8);
}

#[test]
fn work_that_a_yielding_stream_needs_behind_another_gate_completes_too() {
    let rig = TestRig::new();
    let (other, queue) = (rig.stream(99, NON_BLOCKING), rig.queue(NON_BLOCKING, PreemptionLevel::Device));
    rig.engine.enable(&other, config(PreemptionLevel::Device)).unwrap();
    (0..8).for_each(|tag| rig.launch(&other, Effect::Nothing, 100_000, tag).unwrap());
    let event = rig.event();
    rig.engine.record(&other, event).unwrap();
    rig.engine.wait(&queue, event).unwrap();
    rig.launch_tagged(&queue, 8);
    rig.gpu.advance(150_000);
    rig.preempt(&queue, ASYNC).unwrap();
    rig.preempt(&other, ASYNC).unwrap();
    rig.gpu.finish();
    assert!(rig.executed(&queue).is_empty(), "it waits for a stream that has stopped");
    rig.engine.begin_module_load(queue.stream().context);
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [8]);
}
