//! The legacy default stream runs after all earlier work of blocking streams and before all their later work.

use std::sync::Arc;

use sluice_preempt::command::Deferral;
use sluice_preempt::command::Work;
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::Effect;
use crate::rig::{BLOCKING, NON_BLOCKING, SYNC, TestRig};

struct Streams {
    legacy: Arc<Queue>,
    blocking: Arc<Queue>,
    other: Arc<Queue>,
    free: Arc<Queue>,
}

fn streams(rig: &TestRig, level: PreemptionLevel) -> Streams {
    Streams {
        legacy: rig.legacy_queue(level),
        blocking: rig.queue(BLOCKING, level),
        other: rig.queue(BLOCKING, level),
        free: rig.queue(NON_BLOCKING, level),
    }
}

/// Tags of all streams in the order in which they ran.
fn order(rig: &TestRig) -> Vec<u64> {
    rig.gpu.state().executed.iter().map(|(_, tag)| *tag).collect()
}

#[test]
fn legacy_command_waits_for_queued_blocking_ones_and_later_ones_wait_for_it() {
    for level in [PreemptionLevel::Host, PreemptionLevel::Device] {
        let rig = TestRig::new();
        let s = streams(&rig, level);
        for queue in [&s.legacy, &s.blocking, &s.other] {
            rig.preempt(queue, SYNC).unwrap();
        }
        rig.launch_tagged(&s.blocking, 1);
        rig.launch_tagged(&s.legacy, 2);
        rig.launch_tagged(&s.other, 3);
        // In an order that would let later commands overtake earlier ones.
        for queue in [&s.other, &s.legacy, &s.blocking] {
            rig.restore(queue);
        }
        rig.run_to_completion();
        assert_eq!(order(&rig), [1, 2, 3]);
    }
}

#[test]
fn running_legacy_stream_makes_the_preempted_one_submit_what_came_before() {
    let rig = TestRig::new();
    let s = streams(&rig, PreemptionLevel::Host);
    rig.preempt(&s.blocking, SYNC).unwrap();
    rig.launch_tagged(&s.blocking, 1);
    rig.launch_tagged(&s.legacy, 2);
    rig.launch_tagged(&s.blocking, 3);
    rig.launch_tagged(&s.other, 4);
    rig.run_to_completion();
    assert_eq!(order(&rig), [1, 2, 4]);
    rig.restore(&s.blocking);
    rig.run_to_completion();
    assert_eq!(order(&rig), [1, 2, 4, 3]);
}

#[test]
fn gates_of_blocking_streams_open_for_a_running_legacy_command() {
    let rig = TestRig::new();
    let s = streams(&rig, PreemptionLevel::Device);
    (0..4).for_each(|tag| rig.launch(&s.blocking, Effect::Nothing, 100_000, tag).unwrap());
    rig.preempt(&s.blocking, SYNC).unwrap();
    rig.gpu.finish();
    assert_eq!(order(&rig), [0]);
    rig.launch_tagged(&s.legacy, 9);
    rig.gpu.finish();
    assert_eq!(order(&rig), [0, 1, 2, 3, 9]);
}

#[test]
fn gates_open_for_a_legacy_stream_without_preemption_enabled() {
    for legacy_first in [true, false] {
        let rig = TestRig::new();
        let first = legacy_first.then(|| rig.legacy_stream());
        let blocking = rig.queue(BLOCKING, PreemptionLevel::Device);
        let legacy = first.unwrap_or_else(|| rig.legacy_stream());
        (0..4).for_each(|tag| rig.launch(&blocking, Effect::Nothing, 100_000, tag).unwrap());
        rig.preempt(&blocking, SYNC).unwrap();
        rig.launch_tagged(&legacy, 9);
        rig.gpu.finish();
        assert_eq!(order(&rig), [0, 1, 2, 3, 9], "{legacy_first}");
    }
}

#[test]
fn non_blocking_streams_and_legacy_do_not_order_each_other() {
    let rig = TestRig::new();
    let s = streams(&rig, PreemptionLevel::Host);
    rig.preempt(&s.free, SYNC).unwrap();
    rig.launch_tagged(&s.free, 1);
    rig.launch_tagged(&s.legacy, 2);
    assert_eq!(rig.submitted(&s.legacy), 1);
    rig.run_to_completion();
    rig.preempt(&s.legacy, SYNC).unwrap();
    rig.restore(&s.free);
    rig.launch_tagged(&s.legacy, 3);
    rig.launch_tagged(&s.free, 4);
    rig.run_to_completion();
    assert_eq!(order(&rig), [2, 1, 4]);
}

#[test]
fn call_that_cannot_be_queued_is_made_in_order_by_its_caller() {
    let rig = TestRig::new();
    let s = streams(&rig, PreemptionLevel::Host);
    rig.preempt(&s.blocking, SYNC).unwrap();
    rig.launch(&s.blocking, Effect::Store { to: 1, value: 6 }, 1000, 1).unwrap();
    let worker = rig.start_worker();
    // A copy to pageable memory returns with the data. The legacy stream runs, so the other stream submits what comes
    // before.
    let mut copied = 0;
    let now = || {
        let _ = sluice_preempt::driver::Driver::synchronize_stream(&rig.gpu, s.legacy.stream());
        let _ = sluice_preempt::driver::Driver::synchronize_stream(&rig.gpu, s.blocking.stream());
        copied = rig.gpu.read(1);
        Ok(())
    };
    rig.engine.submit(&s.legacy, Work::transfer(8), now, || Ok(Deferral::ByCaller)).unwrap();
    drop(worker);
    assert_eq!(copied, 6);
    assert_eq!(rig.engine.pending_commands(&s.legacy), 0);
}
