//! No stream stays preempted without end unless requested, and idle streams are reported.

use sluice_preempt::command::{Command, Launch};
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::outcome::Notice;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::{Effect, job};
use crate::rig::{ASYNC, NON_BLOCKING, TestRig, config};

const MS: u64 = 1_000_000;

/// Dispatches as a worker would, for `ns`.
fn live(rig: &TestRig, ns: u64) {
    let end = rig.gpu.now() + ns;
    while rig.gpu.now() < end {
        rig.engine.dispatch();
        rig.gpu.advance(100_000.min(end - rig.gpu.now()));
    }
    rig.engine.dispatch();
}

#[test]
fn outage_limit_counts_from_the_first_preempt_call() {
    let rig = TestRig::new();
    let queue = rig.stream(1, NON_BLOCKING);
    rig.engine.enable(&queue, Config { outage_ns: Some(50 * MS), ..config(PreemptionLevel::Host) }).unwrap();
    for _ in 0..5 {
        rig.preempt(&queue, ASYNC).unwrap();
        live(&rig, 9 * MS);
    }
    assert!(rig.engine.state(&queue).unwrap().is_under_preemption());
    live(&rig, 6 * MS);
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Running));
    assert_eq!(rig.observer.all(), [Notice::OutageEnded(queue.id())]);
}

#[test]
fn idle_stream_is_reported_once_and_again_after_it_has_worked() {
    let rig = TestRig::new();
    let queue = rig.stream(1, NON_BLOCKING);
    rig.engine
        .enable(&queue, Config { task_timeout_ns: Some(5 * MS), ..config(PreemptionLevel::Host) })
        .unwrap();
    live(&rig, 50 * MS);
    assert!(rig.observer.all().is_empty());
    for round in 1..3 {
        rig.launch(&queue, Effect::Nothing, MS, round).unwrap();
        live(&rig, 4 * MS);
        assert_eq!(rig.observer.all().len() as u64, round - 1);
        live(&rig, 50 * MS);
        assert_eq!(rig.observer.all().len() as u64, round);
    }
    assert!(rig.observer.all().iter().all(|notice| *notice == Notice::Idle(queue.id())));
    // A stream with a pending command is not idle.
    rig.preempt(&queue, ASYNC).unwrap();
    rig.launch_tagged(&queue, 3);
    live(&rig, 50 * MS);
    assert_eq!(rig.observer.all().len(), 2);
}

#[test]
fn full_window_takes_the_next_commands_when_it_has_room() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    (0..100).for_each(|tag| rig.launch(&queue, Effect::Nothing, MS, tag).unwrap());
    live(&rig, 110 * MS);
    assert_eq!(rig.executed(&queue), (0..100).collect::<Vec<_>>());
}

#[test]
fn kernels_that_were_measured_too_long_run_back_to_back() {
    for long_us in [3_500, 4_000, 4_500, 6_000, 9_000] {
        let rig = TestRig::new();
        let queue = rig.stream(1, NON_BLOCKING);
        let wide =
            Config { queue_size: 1024, batch_size: 32, bound_ns: 10 * MS, ..config(PreemptionLevel::Device) };
        rig.engine.enable(&queue, wide).unwrap();
        let launch = |ns: u64, tag: u64| {
            let Command::Launch(launch) = job(Effect::Nothing, ns, tag) else { unreachable!() };
            rig.command(&queue, &Command::Launch(Launch { function: 1, ..launch })).unwrap();
        };
        (0..200).for_each(|tag| launch(long_us * 1_000, tag));
        // They end between two dispatches.
        (200..400).for_each(|tag| launch(2 * MS + 55_000, tag));
        let executed = || rig.executed(&queue).len();
        while executed() < 220 {
            live(&rig, MS);
        }
        let (before, begin) = (executed(), rig.gpu.now());
        live(&rig, 205_500_000);
        let (ran, ms) = (executed() - before, (rig.gpu.now() - begin) / MS);
        assert!(ran >= 99, "{ran} kernels of 2 ms in {ms} ms after kernels of {long_us} us");
    }
}
