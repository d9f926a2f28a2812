//! Captures: direct on the capturing stream, undisturbed by others and by the engine.

use sluice_preempt::command::Command;
use sluice_preempt::config::Level;
use sluice_preempt::ids::Code;
use sluice_preempt::queue::Queue;

use crate::gpu::Effect;
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, Rig, SYNC};

fn begin(rig: &Rig, queue: &Queue, graph: u64, global: bool) {
    let now = || {
        let mut inside = rig.gpu.inside();
        inside.graphs.insert(graph, Vec::new());
        inside.lanes.get_mut(&queue.stream().handle).unwrap().capture = Some(graph);
        if global {
            inside.global_captures.insert(graph);
        }
        Ok::<(), Code>(())
    };
    rig.engine.begin_capture(queue, now).unwrap();
}

/// The graph's kernels by tag; `None` if the capture was broken.
fn end(rig: &Rig, graph: u64) -> Option<Vec<u64>> {
    let mut inside = rig.gpu.inside();
    let captured = inside.lanes.values_mut().filter(|lane| lane.capture == Some(graph));
    captured.for_each(|lane| lane.capture = None);
    inside.global_captures.remove(&graph);
    let whole = !inside.broken_captures.contains(&graph);
    let tags = inside.graphs[&graph].iter().map(|job| job.tag).collect();
    drop(inside);
    rig.engine.end_capture();
    whole.then_some(tags)
}

#[test]
fn a_stream_captures_while_another_is_preempted_and_the_graph_replays() {
    let rig = Rig::new();
    let (capturing, held) =
        (rig.queue(NON_BLOCKING, Level::Device), rig.queue(NON_BLOCKING, Level::Device));
    rig.preempt(&held, SYNC).unwrap();
    rig.tag(&held, 7);
    begin(&rig, &capturing, 1, false);
    rig.launch(&capturing, Effect::Affine { to: 1, add: 1 }, 1000, 1).unwrap();
    rig.launch(&capturing, Effect::Affine { to: 1, add: 2 }, 1000, 2).unwrap();
    assert_eq!(end(&rig, 1), Some(vec![1, 2]));
    rig.command(&capturing, &Command::Graph(1)).unwrap();
    rig.preempt(&capturing, ASYNC).unwrap();
    rig.command(&capturing, &Command::Graph(1)).unwrap();
    rig.restore(&capturing);
    rig.settle();
    assert_eq!(rig.ran(&capturing), [1, 2, 1, 2]);
    assert_eq!(rig.submitted(&held), 0);
}

#[test]
fn what_waits_in_the_capturing_streams_own_queue_does_not_join_the_graph() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.tag(&queue, 1);
    begin(&rig, &queue, 1, false);
    rig.tag(&queue, 2);
    rig.restore(&queue);
    rig.engine.pump();
    rig.tag(&queue, 3);
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    rig.command(&queue, &Command::Graph(1)).unwrap();
    rig.settle();
    assert_eq!(rig.ran(&queue), [1, 2, 3]);
}

#[test]
fn a_stream_is_drawn_into_a_capture_by_a_wait_even_while_it_is_preempted() {
    let rig = Rig::new();
    let (origin, drawn) =
        (rig.queue(NON_BLOCKING, Level::Host), rig.queue(NON_BLOCKING, Level::Host));
    let event = rig.event();
    rig.preempt(&drawn, SYNC).unwrap();
    rig.tag(&drawn, 1);
    begin(&rig, &origin, 1, false);
    rig.tag(&origin, 2);
    rig.engine.record(&origin, event).unwrap();
    rig.engine.wait(&drawn, event).unwrap();
    rig.tag(&drawn, 3);
    rig.restore(&drawn);
    rig.engine.pump();
    assert_eq!(rig.submitted(&drawn), 0, "older work ran into the capture");
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    rig.settle();
    assert_eq!(rig.ran(&drawn), [1]);
}

#[test]
fn the_engines_own_calls_break_no_capture_of_the_program() {
    let rig = Rig::new();
    let (capturing, busy) =
        (rig.queue(NON_BLOCKING, Level::Device), rig.queue(NON_BLOCKING, Level::Device));
    begin(&rig, &capturing, 1, true);
    for tag in 0..200 {
        rig.launch(&busy, Effect::Nothing, 50_000, tag).unwrap();
        rig.tag(&capturing, tag);
        match tag % 20 {
            5 => drop(rig.preempt(&busy, SYNC).unwrap()),
            15 => rig.restore(&busy),
            _ => drop(rig.engine.pump()),
        }
        rig.gpu.advance(10_000);
    }
    assert_eq!(end(&rig, 1), Some((0..200).collect()));
    rig.settle();
    assert_eq!(rig.ran(&busy), (0..200).collect::<Vec<_>>());
}

#[test]
fn preempting_a_capturing_stream_changes_no_graph_and_does_not_claim_that_it_stands_still() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.launch(&queue, Effect::Nothing, 50_000, 1).unwrap();
    begin(&rig, &queue, 1, false);
    rig.tag(&queue, 2);
    assert!(!rig.preempt(&queue, ASYNC).unwrap().stopped);
    rig.tag(&queue, 3);
    assert_eq!(end(&rig, 1), Some(vec![2, 3]));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);
    assert_eq!(rig.ran(&queue), [1]);
    rig.command(&queue, &Command::Graph(1)).unwrap();
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), [1, 2, 3]);
}

#[test]
fn nothing_goes_to_the_legacy_stream_while_a_blocking_one_is_captured() {
    let rig = Rig::new();
    let (capturing, legacy) =
        (rig.queue(BLOCKING, Level::Device), rig.legacy_queue(Level::Device));
    rig.preempt(&legacy, SYNC).unwrap();
    rig.tag(&legacy, 7);
    begin(&rig, &capturing, 1, true);
    rig.launch(&capturing, Effect::Nothing, 1000, 1).unwrap();
    // Neither what waited, nor a record by which the engine would learn whether it stands.
    rig.restore(&legacy);
    rig.engine.pump();
    rig.preempt(&legacy, ASYNC).unwrap();
    rig.engine.pump();
    assert_eq!(end(&rig, 1), Some(vec![1]));
    rig.restore(&legacy);
    rig.settle();
    assert_eq!(rig.ran(&legacy), [7]);
}
