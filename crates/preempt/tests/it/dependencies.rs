//! A running stream that waits for a preempted one is not stuck.

use std::sync::Arc;

use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::queue::Queue;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::Effect;
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, SYNC, TestRig};

fn chain(rig: &TestRig, level: PreemptionLevel) -> [Arc<Queue>; 3] {
    std::array::from_fn(|_| rig.queue(NON_BLOCKING, level))
}

#[test]
fn preempted_stream_submits_what_a_running_stream_waits_for_and_no_more() {
    let rig = TestRig::new();
    let [held, running, _] = chain(&rig, PreemptionLevel::Host);
    let event = rig.event();
    rig.preempt(&held, SYNC).unwrap();
    rig.launch_tagged(&held, 1);
    rig.engine.record(&held, event).unwrap();
    rig.launch_tagged(&held, 2);
    rig.engine.wait(&running, event).unwrap();
    rig.launch_tagged(&running, 3);
    rig.run_to_completion();
    assert_eq!((rig.executed(&held), rig.executed(&running)), (vec![1], vec![3]));
    assert_eq!(rig.engine.state(&held), Some(StreamState::Preempted));
    rig.restore(&held);
    rig.run_to_completion();
    assert_eq!(rig.executed(&held), [1, 2]);
}

#[test]
fn inheritance_passes_through_several_preempted_streams() {
    let rig = TestRig::new();
    let [first, second, running] = chain(&rig, PreemptionLevel::Host);
    let (one, two) = (rig.event(), rig.event());
    for queue in [&first, &second] {
        rig.preempt(queue, SYNC).unwrap();
    }
    rig.launch_tagged(&first, 1);
    rig.engine.record(&first, one).unwrap();
    rig.engine.wait(&second, one).unwrap();
    rig.launch_tagged(&second, 2);
    rig.engine.record(&second, two).unwrap();
    rig.launch_tagged(&second, 3);
    rig.engine.wait(&running, two).unwrap();
    rig.launch_tagged(&running, 4);
    rig.run_to_completion();
    assert_eq!(
        (rig.executed(&first), rig.executed(&second), rig.executed(&running)),
        (vec![1], vec![2], vec![4])
    );
}

#[test]
fn nothing_is_inherited_while_the_waiting_stream_is_preempted_too() {
    let rig = TestRig::new();
    let [held, waiting, _] = chain(&rig, PreemptionLevel::Host);
    let event = rig.event();
    for queue in [&held, &waiting] {
        rig.preempt(queue, SYNC).unwrap();
    }
    rig.launch_tagged(&held, 1);
    rig.engine.record(&held, event).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch_tagged(&waiting, 2);
    rig.run_to_completion();
    assert_eq!((rig.submitted(&held), rig.submitted(&waiting)), (0, 0));
    rig.restore(&waiting);
    rig.run_to_completion();
    assert_eq!((rig.executed(&held), rig.executed(&waiting)), (vec![1], vec![2]));
}

#[test]
fn closed_gates_let_pass_what_a_running_stream_waits_for_on_the_gpu() {
    for wait_first in [true, false] {
        let rig = TestRig::new();
        let [held, running, _] = chain(&rig, PreemptionLevel::Device);
        let event = rig.event();
        (0..3).for_each(|tag| rig.launch(&held, Effect::Nothing, 100_000, tag).unwrap());
        rig.engine.record(&held, event).unwrap();
        (3..6).for_each(|tag| rig.launch(&held, Effect::Nothing, 100_000, tag).unwrap());
        if wait_first {
            rig.engine.wait(&running, event).unwrap();
        }
        rig.preempt(&held, ASYNC).unwrap();
        if !wait_first {
            rig.gpu.finish();
            assert_eq!(rig.executed(&held), [0]);
            rig.engine.wait(&running, event).unwrap();
        }
        rig.launch_tagged(&running, 9);
        rig.gpu.finish();
        assert_eq!((rig.executed(&held), rig.executed(&running)), (vec![0, 1, 2], vec![9]), "{wait_first}");
    }
}

#[test]
fn gates_open_for_a_stream_that_is_restored_while_it_waits_on_the_gpu() {
    let rig = TestRig::new();
    let [held, waiting, _] = chain(&rig, PreemptionLevel::Device);
    let event = rig.event();
    (0..3).for_each(|tag| rig.launch(&held, Effect::Nothing, 100_000, tag).unwrap());
    rig.engine.record(&held, event).unwrap();
    rig.engine.wait(&waiting, event).unwrap();
    rig.launch_tagged(&waiting, 9);
    rig.preempt(&waiting, ASYNC).unwrap();
    rig.preempt(&held, ASYNC).unwrap();
    rig.gpu.finish();
    assert_eq!((rig.executed(&held), rig.executed(&waiting)), (vec![0], vec![]));
    rig.restore(&waiting);
    rig.gpu.finish();
    assert_eq!((rig.executed(&held), rig.executed(&waiting)), (vec![0, 1, 2], vec![9]));
}

#[test]
fn preempted_context_delays_no_stream_of_another_context() {
    let rig = TestRig::new();
    let (held, other) = (rig.queue(BLOCKING, PreemptionLevel::Host), rig.stream(2, BLOCKING));
    rig.preempt(&held, SYNC).unwrap();
    rig.launch_tagged(&held, 1);
    let event = rig.event();
    rig.engine.record(&other, event).unwrap();
    rig.launch_tagged(&other, 2);
    // Both calls return although the other context's stream has stopped: the test has one thread.
    rig.engine.flush_context(other.stream().context).unwrap();
    rig.engine.synchronize_stream(&other).unwrap();
    assert_eq!((rig.executed(&other), rig.submitted(&held)), (vec![2], 0));
}

#[test]
fn need_passes_through_the_gpu_work_of_several_preempted_streams() {
    for wait_late in [true, false] {
        let rig = TestRig::new();
        let [first, second, running] = chain(&rig, PreemptionLevel::Device);
        let (one, two) = (rig.event(), rig.event());
        (0..3).for_each(|tag| rig.launch(&first, Effect::Nothing, 100_000, tag).unwrap());
        rig.engine.record(&first, one).unwrap();
        rig.launch(&first, Effect::Nothing, 100_000, 3).unwrap();
        rig.launch(&second, Effect::Nothing, 100_000, 4).unwrap();
        rig.engine.wait(&second, one).unwrap();
        (5..7).for_each(|tag| rig.launch(&second, Effect::Nothing, 100_000, tag).unwrap());
        rig.engine.record(&second, two).unwrap();
        rig.launch(&second, Effect::Nothing, 100_000, 7).unwrap();
        if !wait_late {
            rig.engine.wait(&running, two).unwrap();
        }
        rig.preempt(&second, ASYNC).unwrap();
        rig.preempt(&first, ASYNC).unwrap();
        if wait_late {
            rig.gpu.finish();
            rig.engine.wait(&running, two).unwrap();
        }
        rig.launch_tagged(&running, 9);
        rig.gpu.finish();
        assert_eq!(rig.executed(&running), [9], "{wait_late}");
        assert_eq!(
            (rig.executed(&first), rig.executed(&second)),
            (vec![0, 1, 2], vec![4, 5, 6]),
            "{wait_late}"
        );
    }
}

#[test]
fn eight_streams_in_a_ring_of_events_keep_their_order() {
    let rig = TestRig::new();
    let queues: Vec<_> = (0..8).map(|_| rig.queue(BLOCKING, PreemptionLevel::Device)).collect();
    let events: Vec<_> = (0..8).map(|_| rig.event()).collect();
    let mut expected = 0u64;
    for n in 0..4000u64 {
        let (here, next) = ((n % 8) as usize, ((n + 1) % 8) as usize);
        // All streams change one memory word one after the other: only the events order them.
        rig.launch(&queues[here], Effect::Affine { to: 1, add: n }, 5_000, n).unwrap();
        expected = expected.wrapping_mul(3).wrapping_add(n);
        rig.engine.record(&queues[here], events[here]).unwrap();
        rig.engine.wait(&queues[next], events[here]).unwrap();
        match n % 13 {
            1 => drop(rig.preempt(&queues[(n % 7) as usize], ASYNC).unwrap()),
            4 => drop(rig.preempt(&queues[(n % 5) as usize], SYNC).unwrap()),
            7 | 9 => rig.restore(&queues[(n % 8) as usize]),
            _ => drop(rig.engine.dispatch()),
        }
        rig.gpu.advance(3_000);
    }
    queues.iter().for_each(|queue| rig.restore(queue));
    rig.run_to_completion();
    assert_eq!(rig.gpu.read(1), expected);
}

#[test]
fn channel_group_is_not_disabled_while_another_stream_waits_for_the_stream_on_the_gpu() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let [held, running, _] = chain(&rig, PreemptionLevel::Full);
    let event = rig.event();
    // Submitted while preempted, so no gate is in front of it.
    assert_eq!(rig.preempt(&held, SYNC).unwrap().level, PreemptionLevel::Full);
    rig.launch(&held, Effect::Nothing, 100_000, 1).unwrap();
    rig.engine.record(&held, event).unwrap();
    rig.engine.wait(&running, event).unwrap();
    rig.launch_tagged(&running, 2);
    rig.engine.dispatch();
    rig.restore(&held);
    assert_eq!(rig.preempt(&held, ASYNC).unwrap().level, PreemptionLevel::Device);
    rig.gpu.finish();
    assert_eq!((rig.executed(&held), rig.executed(&running)), (vec![1], vec![2]));
}

#[test]
fn channel_groups_are_enabled_for_needs_that_pass_through_several_streams() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let [first, second, running] = chain(&rig, PreemptionLevel::Full);
    let (one, two) = (rig.event(), rig.event());
    rig.launch(&first, Effect::Nothing, 100_000, 1).unwrap();
    rig.engine.record(&first, one).unwrap();
    rig.engine.wait(&second, one).unwrap();
    rig.launch(&second, Effect::Nothing, 100_000, 2).unwrap();
    rig.engine.record(&second, two).unwrap();
    for queue in [&second, &first] {
        assert_eq!(rig.preempt(queue, ASYNC).unwrap().level, PreemptionLevel::Full);
    }
    rig.gpu.finish();
    rig.engine.wait(&running, two).unwrap();
    rig.launch_tagged(&running, 3);
    rig.gpu.finish();
    assert_eq!(
        (rig.executed(&first), rig.executed(&second), rig.executed(&running)),
        (vec![1], vec![2], vec![3])
    );
}
