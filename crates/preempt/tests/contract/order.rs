//! Order, exactly once, and that nothing reaches the driver of a preempted stream (G1-G3).

use sluice_preempt::config::Level;
use sluice_preempt::ids::{Code, Kind};
use sluice_preempt::state::State;

use crate::gpu::Effect;
use crate::rig::{ASYNC, Rig, SYNC};

#[test]
fn a_running_stream_takes_commands_on_the_callers_thread() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    rig.tag(&queue, 1);
    assert_eq!(rig.submitted(&queue), 1);
    assert_eq!(rig.engine.waiting(&queue), 0);
}

#[test]
fn nothing_reaches_the_driver_from_the_return_of_preempt_until_restore() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    rig.tag(&queue, 1);
    rig.preempt(&queue, ASYNC).unwrap();
    (2..100).for_each(|tag| rig.tag(&queue, tag));
    rig.engine.pump();
    rig.gpu.finish();
    assert_eq!(rig.ran(&queue), [1]);
    assert_eq!(rig.engine.query_stream(&queue), Err(Code::NOT_READY));
    rig.restore(&queue);
    rig.settle();
    assert_eq!(rig.ran(&queue), (1..100).collect::<Vec<_>>());
    assert_eq!(rig.engine.query_stream(&queue), Ok(()));
}

#[test]
fn commands_that_come_while_older_ones_are_handed_over_stay_behind_them() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    rig.preempt(&queue, SYNC).unwrap();
    (0..50).for_each(|tag| rig.tag(&queue, tag));
    rig.restore(&queue);
    rig.engine.pump();
    (50..60).for_each(|tag| rig.tag(&queue, tag));
    rig.settle();
    (60..70).for_each(|tag| rig.tag(&queue, tag));
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..70).collect::<Vec<_>>());
}

#[test]
fn the_bound_by_count_and_by_learned_time_is_kept() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    let mut most = 0;
    for tag in 0..400 {
        rig.launch(&queue, Effect::Nothing, 200_000, tag).unwrap();
        rig.engine.pump();
        if tag > 100 {
            most = most.max(rig.submitted(&queue) - rig.ran(&queue).len());
        }
        rig.gpu.advance(100_000);
    }
    // 1 ms of 200 µs kernels, however many are allowed by count.
    assert!((1..=5).contains(&most), "{most} in flight");
    rig.settle();
    assert_eq!(rig.ran(&queue), (0..400).collect::<Vec<_>>());
}

#[test]
fn state_follows_the_last_call() {
    let rig = Rig::new();
    let queue = rig.queue(Kind::NonBlocking, Level::Host);
    rig.launch(&queue, Effect::Nothing, 300_000, 1).unwrap();
    assert!(!rig.preempt(&queue, ASYNC).unwrap().stopped);
    assert_eq!(rig.engine.state(&queue), Some(State::Preempting));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);
    assert_eq!(rig.engine.state(&queue), Some(State::Preempted));
    rig.restore(&queue);
    rig.restore(&queue);
    assert_eq!(rig.engine.state(&queue), Some(State::Running));
    assert!(rig.preempt(&queue, SYNC).unwrap().took_ns < 1_000);
}
