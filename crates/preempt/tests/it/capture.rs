//! Captures go directly to the driver, and neither other streams nor the engine disturb them.

use sluice_preempt::command::Command;
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::ids::Code;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::Effect;
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, SYNC, TestRig};

fn begin(rig: &TestRig, queue: &Queue, graph: u64, global: bool) {
    let now = || {
        let mut state = rig.gpu.state();
        state.graphs.insert(graph, Vec::new());
        state.streams.get_mut(&queue.stream().handle).unwrap().capture = Some(graph);
        if global {
            state.global_captures.insert(graph);
        }
        Ok::<(), Code>(())
    };
    rig.engine.begin_capture(queue, now).unwrap();
}

/// The tags of the graph's kernels; `None` if the capture was broken.
fn end(rig: &TestRig, graph: u64) -> Option<Vec<u64>> {
    let mut state = rig.gpu.state();
    let captured = state.streams.values_mut().filter(|fake| fake.capture == Some(graph));
    captured.for_each(|fake| fake.capture = None);
    state.global_captures.remove(&graph);
    let whole = !state.broken_captures.contains(&graph);
    let tags = state.graphs[&graph].iter().map(|job| job.tag).collect();
    drop(state);
    rig.engine.end_capture();
    whole.then_some(tags)
}

#[test]
fn stream_captures_while_another_is_preempted_and_its_graph_replays() {
    let rig = TestRig::new();
    let (capturing, held) =
        (rig.queue(NON_BLOCKING, PreemptionLevel::Device), rig.queue(NON_BLOCKING, PreemptionLevel::Device));
    rig.preempt(&held, SYNC).unwrap();
    rig.launch_tagged(&held, 7);
    begin(&rig, &capturing, 1, false);
    rig.launch(&capturing, Effect::Affine { to: 1, add: 1 }, 1000, 1).unwrap();
    rig.launch(&capturing, Effect::Affine { to: 1, add: 2 }, 1000, 2).unwrap();
    assert_eq!(end(&rig, 1), Some(vec![1, 2]));
    rig.command(&capturing, &Command::Graph(1)).unwrap();
    rig.preempt(&capturing, ASYNC).unwrap();
    rig.command(&capturing, &Command::Graph(1)).unwrap();
    rig.restore(&capturing);
    rig.run_to_completion();
    assert_eq!(rig.executed(&capturing), [1, 2, 1, 2]);
    assert_eq!(rig.submitted(&held), 0);
}

#[test]
fn pending_commands_of_capturing_stream_do_not_join_the_graph() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    begin(&rig, &queue, 1, false);
    rig.launch_tagged(&queue, 2);
    rig.restore(&queue);
    rig.engine.dispatch();
    rig.launch_tagged(&queue, 3);
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    rig.command(&queue, &Command::Graph(1)).unwrap();
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), [1, 2, 3]);
}

#[test]
fn preempted_stream_joins_capture_through_a_wait() {
    let rig = TestRig::new();
    let (origin, drawn) =
        (rig.queue(NON_BLOCKING, PreemptionLevel::Host), rig.queue(NON_BLOCKING, PreemptionLevel::Host));
    let event = rig.event();
    rig.preempt(&drawn, SYNC).unwrap();
    rig.launch_tagged(&drawn, 1);
    begin(&rig, &origin, 1, false);
    rig.launch_tagged(&origin, 2);
    rig.engine.record(&origin, event).unwrap();
    rig.engine.wait(&drawn, event).unwrap();
    rig.launch_tagged(&drawn, 3);
    rig.restore(&drawn);
    rig.engine.dispatch();
    assert_eq!(rig.submitted(&drawn), 0, "older work joined the capture");
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    rig.run_to_completion();
    assert_eq!(rig.executed(&drawn), [1]);
}

#[test]
fn engines_own_calls_break_no_capture_of_the_program() {
    let rig = TestRig::new();
    let (capturing, busy) =
        (rig.queue(NON_BLOCKING, PreemptionLevel::Device), rig.queue(NON_BLOCKING, PreemptionLevel::Device));
    begin(&rig, &capturing, 1, true);
    for tag in 0..200 {
        rig.launch(&busy, Effect::Nothing, 50_000, tag).unwrap();
        rig.launch_tagged(&capturing, tag);
        match tag % 20 {
            5 => drop(rig.preempt(&busy, SYNC).unwrap()),
            15 => rig.restore(&busy),
            _ => drop(rig.engine.dispatch()),
        }
        rig.gpu.advance(10_000);
    }
    assert_eq!(end(&rig, 1), Some((0..200).collect()));
    rig.run_to_completion();
    assert_eq!(rig.executed(&busy), (0..200).collect::<Vec<_>>());
}

#[test]
fn preempting_a_capturing_stream_changes_no_graph_and_does_not_report_it_stopped() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch(&queue, Effect::Nothing, 50_000, 1).unwrap();
    begin(&rig, &queue, 1, false);
    rig.launch_tagged(&queue, 2);
    assert!(!rig.preempt(&queue, ASYNC).unwrap().stopped);
    rig.launch_tagged(&queue, 3);
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);
    assert_eq!(rig.executed(&queue), [1]);
    rig.command(&queue, &Command::Graph(1)).unwrap();
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), [1, 2, 3]);
}

#[test]
fn nothing_is_submitted_to_the_legacy_stream_while_a_blocking_one_is_captured() {
    let rig = TestRig::new();
    let (capturing, legacy) =
        (rig.queue(BLOCKING, PreemptionLevel::Device), rig.legacy_queue(PreemptionLevel::Device));
    rig.preempt(&legacy, SYNC).unwrap();
    rig.launch_tagged(&legacy, 7);
    begin(&rig, &capturing, 1, true);
    rig.launch(&capturing, Effect::Nothing, 1000, 1).unwrap();
    // Neither the pending command nor the fence by which the engine would check whether the stream has stopped.
    rig.restore(&legacy);
    rig.engine.dispatch();
    rig.preempt(&legacy, ASYNC).unwrap();
    rig.engine.dispatch();
    assert_eq!(end(&rig, 1), Some(vec![1]));
    rig.restore(&legacy);
    rig.run_to_completion();
    assert_eq!(rig.executed(&legacy), [7]);
}
