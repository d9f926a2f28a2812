//! Order, exactly-once submission, and no submission to a preempted stream (G1-G3).

use sluice_preempt::command::Command;
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::ids::Code;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::{Effect, job};
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, SYNC, TestRig};

#[test]
fn running_stream_submits_on_the_callers_thread() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch_tagged(&queue, 1);
    assert_eq!(rig.submitted(&queue), 1);
    assert_eq!(rig.engine.pending_commands(&queue), 0);
}

#[test]
fn nothing_reaches_the_driver_from_the_return_of_preempt_until_restore() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch_tagged(&queue, 1);
    rig.preempt(&queue, ASYNC).unwrap();
    (2..100).for_each(|tag| rig.launch_tagged(&queue, tag));
    rig.engine.dispatch();
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [1]);
    assert_eq!(rig.engine.query_stream(&queue), Err(Code::NOT_READY));
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (1..100).collect::<Vec<_>>());
    assert_eq!(rig.engine.query_stream(&queue), Ok(()));
}

#[test]
fn commands_called_during_dispatch_stay_behind_older_ones() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    (0..50).for_each(|tag| rig.launch_tagged(&queue, tag));
    rig.restore(&queue);
    rig.engine.dispatch();
    (50..60).for_each(|tag| rig.launch_tagged(&queue, tag));
    rig.run_to_completion();
    (60..70).for_each(|tag| rig.launch_tagged(&queue, tag));
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..70).collect::<Vec<_>>());
}

#[test]
fn bounds_by_count_and_by_learned_time_are_kept() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    let mut most = 0;
    for tag in 0..400 {
        rig.launch(&queue, Effect::Nothing, 200_000, tag).unwrap();
        rig.engine.dispatch();
        if tag > 100 {
            most = most.max(rig.submitted(&queue) - rig.executed(&queue).len());
        }
        rig.gpu.advance(100_000);
    }
    // 1 ms of 200 µs kernels, although the count allows more.
    assert!((1..=5).contains(&most), "{most} in flight");
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..400).collect::<Vec<_>>());
}

#[test]
fn stream_that_is_stopped_repeatedly_is_measured_in_between() {
    for level in [PreemptionLevel::Host, PreemptionLevel::Device] {
        let rig = TestRig::new();
        let queue = rig.queue(NON_BLOCKING, level);
        let mut tag = 0;
        let mut keep_going = |ns, ahead| {
            while tag < rig.executed(&queue).len() as u64 + ahead {
                let mut kernel = job(Effect::Nothing, ns, tag);
                if let Command::Launch(launch) = &mut kernel {
                    launch.function = 7;
                }
                rig.command(&queue, &kernel).unwrap();
                tag += 1;
            }
            rig.engine.dispatch();
        };
        (0..40).for_each(|_| {
            keep_going(10_000, 64);
            rig.gpu.advance(100_000);
        });
        // The kernel lasts ten times as long from here on, and two batches of eight never complete between two stops.
        for _ in 0..100 {
            keep_going(100_000, 64);
            rig.gpu.advance(250_000);
            assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, level);
            rig.restore(&queue);
        }
        keep_going(100_000, 64);
        let begun = rig.submitted(&queue) - rig.executed(&queue).len();
        // 1 ms of 100 µs kernels, not of 10 µs ones.
        assert!((8..=11).contains(&begun), "level {level:?}: {begun} in the driver");
        rig.run_to_completion();
    }
}

#[test]
fn gaps_between_batches_do_not_count_as_work() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    // One 10 µs kernel every 10 ms: a batch is 80 µs of work in 80 ms.
    for tag in 0..200 {
        rig.launch(&queue, Effect::Nothing, 10_000, tag).unwrap();
        rig.gpu.advance(10_000_000);
    }
    (200..300).for_each(|tag| rig.launch(&queue, Effect::Nothing, 10_000, tag).unwrap());
    let in_driver = rig.submitted(&queue) - rig.executed(&queue).len();
    assert!(in_driver >= 8, "{in_driver} in the driver: a kernel is thought to last as long as the gap");
    rig.run_to_completion();
}

#[test]
fn state_follows_the_last_call() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch(&queue, Effect::Nothing, 300_000, 1).unwrap();
    assert!(!rig.preempt(&queue, ASYNC).unwrap().stopped);
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Preempting));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Preempted));
    rig.restore(&queue);
    rig.restore(&queue);
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Running));
    assert!(rig.preempt(&queue, SYNC).unwrap().took_ns < 1_000);
}

#[test]
fn hundred_thousand_dependent_increments_survive_preemption_at_1_khz() {
    let rig = TestRig::new();
    let queue = rig.queue(BLOCKING, PreemptionLevel::Device);
    let mut dice = 0x9E37_79B9_7F4A_7C15u64;
    let mut expected = 0u64;
    for n in 0..100_000u64 {
        // Kernels of 10 µs: every hundredth one completes a millisecond.
        rig.launch(&queue, Effect::Affine { to: 1, add: n }, 10_000, n).unwrap();
        expected = expected.wrapping_mul(3).wrapping_add(n);
        rig.gpu.advance(10_000);
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        match dice % 200 {
            0 => drop(rig.preempt(&queue, ASYNC).unwrap()),
            1 => drop(rig.preempt(&queue, SYNC).unwrap()),
            2 | 3 => rig.restore(&queue),
            _ => drop(rig.engine.dispatch()),
        }
    }
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.gpu.read(1), expected);
    assert_eq!(rig.executed(&queue), (0..100_000).collect::<Vec<_>>());
}

#[test]
fn after_preempt_the_gpu_completes_submitted_work_and_after_a_synchronous_one_nothing() {
    for level in [PreemptionLevel::Host, PreemptionLevel::Device] {
        let rig = TestRig::new();
        let queue = rig.queue(BLOCKING, level);
        (0..20).for_each(|tag| rig.launch(&queue, Effect::Nothing, 50_000, tag).unwrap());
        rig.preempt(&queue, ASYNC).unwrap();
        let in_driver = rig.submitted(&queue);
        rig.engine.dispatch();
        rig.gpu.finish();
        assert_eq!(rig.submitted(&queue), in_driver);
        rig.restore(&queue);
        rig.run_to_completion();
        (20..40).for_each(|tag| rig.launch(&queue, Effect::Nothing, 50_000, tag).unwrap());
        rig.gpu.advance(60_000);
        rig.preempt(&queue, SYNC).unwrap();
        let ran = rig.executed(&queue).len();
        rig.gpu.finish();
        assert_eq!(rig.executed(&queue).len(), ran, "{level:?}");
    }
}
