//! Calls that wait for all that a context has been given come back although streams are preempted in it.

use std::sync::Arc;

use sluice_preempt::config::Level;
use sluice_preempt::engine::Request;
use sluice_preempt::ids::Context;
use sluice_preempt::outcome::{Achieved, Error};
use sluice_preempt::queue::Queue;
use sluice_preempt::state::State;

use crate::gpu::{During, Effect, Gpu};
use crate::rig::{ASYNC, NON_BLOCKING, Rig, SYNC, config};

/// Eight kernels, the second of which runs.
fn busy(rig: &Rig, level: Level) -> Arc<Queue> {
    let queue = rig.queue(NON_BLOCKING, level);
    (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(150_000);
    queue
}

/// The program preempts a stream of its own.
fn own(rig: &Rig, queue: &Queue, request: Request) -> Result<Achieved, Error> {
    rig.engine.set_yields(queue, true);
    rig.preempt(queue, request)
}

fn is_idle(gpu: &Gpu, queue: &Queue) -> bool {
    gpu.inside().lanes[&queue.stream().handle].ops.is_empty()
}

#[test]
fn what_the_driver_has_is_done_and_nothing_more() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Device);
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Device);
    rig.tag(&queue, 8);
    rig.engine.load_begins(queue.stream().context);
    assert_eq!(
        rig.engine.state(&queue),
        Some(State::Preempting),
        "the second kernel runs, six are behind it"
    );
    rig.settle();
    assert!(is_idle(&rig.gpu, &queue), "whoever waits for the context waits for a gate");
    assert_eq!(rig.ran(&queue), (0..8).collect::<Vec<_>>());
    assert_eq!(rig.engine.state(&queue), Some(State::Preempted));
    rig.engine.load_ends(queue.stream().context);
    rig.settle();
    assert_eq!(rig.ran(&queue).len(), 8, "it is preempted");
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..9).collect::<Vec<_>>());
}

#[test]
fn whoever_preempts_meanwhile_is_told_that_the_door_alone_holds_and_waits_for_that() {
    for level in [Level::Device, Level::Full] {
        let rig = Rig::new();
        rig.gpu.inside().slices = Some(Ok(()));
        let queue = busy(&rig, level);
        rig.engine.load_begins(queue.stream().context);
        let achieved = own(&rig, &queue, SYNC).unwrap();
        assert_eq!((achieved.level, achieved.stopped), (Level::Host, true));
        assert_eq!(rig.ran(&queue).len(), 8);
        rig.restore(&queue);
        rig.engine.load_ends(queue.stream().context);
        (8..16).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
        rig.gpu.advance(150_000);
        assert_eq!(own(&rig, &queue, SYNC).unwrap().level, level, "the load is over");
        rig.gpu.finish();
        assert!(rig.ran(&queue).len() < 16);
    }
}

#[test]
fn whoever_waits_for_a_stop_waits_for_the_one_that_comes_after_a_load() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Device);
    own(&rig, &queue, SYNC).unwrap();
    rig.engine.load_begins(queue.stream().context);
    let achieved = own(&rig, &queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (Level::Host, true));
    assert_eq!(rig.ran(&queue).len(), 8);
}

#[test]
fn when_the_call_has_come_back_gates_stop_what_is_left() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Device);
    own(&rig, &queue, SYNC).unwrap();
    rig.engine.load_begins(queue.stream().context);
    rig.engine.load_ends(queue.stream().context);
    rig.gpu.advance(100_000);
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Device);
    rig.gpu.finish();
    let ran = rig.ran(&queue).len();
    assert!((2..6).contains(&ran), "{ran} kernels");
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn what_stands_at_level_full_goes_on_too() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    let queue = busy(&rig, Level::Full);
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Full);
    rig.engine.load_begins(queue.stream().context);
    rig.settle();
    assert!(is_idle(&rig.gpu, &queue));
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Host);
}

#[test]
fn without_gates_nobody_is_taken_off_the_gpu_meanwhile() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    rig.gpu.inside().gates = false;
    let queue = busy(&rig, Level::Full);
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Full);
    rig.engine.load_begins(queue.stream().context);
    rig.gpu.finish();
    assert!(is_idle(&rig.gpu, &queue));
    assert_eq!(own(&rig, &queue, SYNC).unwrap().level, Level::Host);
}

#[test]
fn a_stream_that_yields_while_somebody_waits_for_its_stop_has_stopped_when_it_is_through() {
    let rig = Rig::new();
    let queue = busy(&rig, Level::Device);
    let other = rig.clone();
    rig.gpu.during(During::Query, move || other.engine.load_begins(Context(1)));
    let achieved = own(&rig, &queue, SYNC).unwrap();
    assert!(rig.gpu.was_there(During::Query));
    assert_eq!((achieved.level, achieved.stopped, rig.ran(&queue).len()), (Level::Host, true, 8));
}

#[test]
fn streams_of_other_contexts_and_those_that_do_not_yield_stand() {
    let rig = Rig::new();
    let (mine, manager_s) = (busy(&rig, Level::Device), busy(&rig, Level::Device));
    own(&rig, &mine, SYNC).unwrap();
    rig.preempt(&manager_s, SYNC).unwrap();
    let ran = (rig.ran(&mine), rig.ran(&manager_s));
    rig.engine.load_begins(Context(99));
    rig.gpu.finish();
    assert_eq!((rig.ran(&mine), rig.ran(&manager_s)), ran);
    rig.engine.load_begins(mine.stream().context);
    rig.gpu.finish();
    assert_eq!((rig.ran(&mine).len(), rig.ran(&manager_s)), (8, ran.1));
    // The manager lets go of it, and the program holds it on.
    own(&rig, &manager_s, ASYNC).unwrap();
    rig.gpu.finish();
    assert_eq!(rig.ran(&manager_s).len(), 8);
}

#[test]
fn what_it_waits_for_behind_another_gate_is_done_too() {
    let rig = Rig::new();
    let (other, queue) = (rig.plain(99, NON_BLOCKING), rig.queue(NON_BLOCKING, Level::Device));
    rig.engine.enable(&other, config(Level::Device)).unwrap();
    (0..8).for_each(|tag| rig.launch(&other, Effect::Nothing, 100_000, tag).unwrap());
    let event = rig.event();
    rig.engine.record(&other, event).unwrap();
    rig.engine.wait(&queue, event).unwrap();
    rig.tag(&queue, 8);
    rig.gpu.advance(150_000);
    own(&rig, &queue, ASYNC).unwrap();
    own(&rig, &other, ASYNC).unwrap();
    rig.gpu.finish();
    assert!(rig.ran(&queue).is_empty(), "it waits for a stream that stands");
    rig.engine.load_begins(queue.stream().context);
    rig.gpu.finish();
    assert_eq!(rig.ran(&queue), [8]);
}
