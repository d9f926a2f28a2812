//! What each level stops, and which level is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_preempt::command::Command;
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::driver::ChannelGroupError;
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::Error;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::{CallPoint, Effect, job};
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, SYNC, TestRig, config};

fn busy(rig: &TestRig, level: PreemptionLevel) -> std::sync::Arc<sluice_preempt::queue::Queue> {
    let queue = rig.queue(NON_BLOCKING, level);
    (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(150_000);
    queue
}

#[test]
fn level_host_waits_for_everything_in_the_driver() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Host);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Host, true));
    assert_eq!(rig.executed(&queue).len(), 8);
}

#[test]
fn level_device_waits_for_the_running_kernel_only() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Device, true));
    assert_eq!(rig.executed(&queue), [0, 1]);
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0, 1]);
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn work_without_a_gate_is_reported_as_stopping_at_level_host() {
    let rig = TestRig::new();
    rig.gpu.state().refuses_gates = true;
    let queue = busy(&rig, PreemptionLevel::Device);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Host, true));
    assert_eq!(rig.executed(&queue).len(), 8);
    rig.restore(&queue);
    rig.gpu.state().refuses_gates = false;
    (8..16).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(150_000);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Device);
    assert_eq!(rig.executed(&queue).len(), 10);
}

#[test]
fn accepted_gates_do_not_hold_up_work_behind_a_refused_one() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    rig.gpu.state().refuses_gates = true;
    (8..10).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Host, true));
    assert_eq!(rig.executed(&queue).len(), 10);
}

#[test]
fn level_device_waits_for_a_kernel_whose_gate_was_open_when_the_gpu_reached_it() {
    for passing_ns in [1_000, 50_000, 1_000_000] {
        let rig = TestRig::new();
        rig.gpu.state().passing_ns = passing_ns;
        let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
        (0..8).for_each(|tag| rig.launch(&queue, Effect::Nothing, 100_000, tag).unwrap());
        // The GPU is passing the first gate.
        rig.gpu.advance(500);
        let achieved = rig.preempt(&queue, SYNC).unwrap();
        assert_eq!((achieved.level, achieved.stopped), (PreemptionLevel::Device, true));
        let ran = rig.executed(&queue);
        rig.gpu.finish();
        assert_eq!(rig.executed(&queue), ran, "{passing_ns} ns from word to kernel");
        rig.restore(&queue);
        rig.run_to_completion();
        assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
    }
}

#[test]
fn level_full_waits_for_nothing() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = busy(&rig, PreemptionLevel::Full);
    let achieved = rig.preempt(&queue, SYNC).unwrap();
    assert_eq!((achieved.level, achieved.stopped, achieved.took_ns), (PreemptionLevel::Full, true, 0));
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0]);
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn stream_that_needs_a_disabled_context_gets_the_gpu_and_gates_stop_the_preempted_one() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = busy(&rig, PreemptionLevel::Full);
    let other = rig.stream(99, NON_BLOCKING);
    rig.preempt(&queue, SYNC).unwrap();
    rig.engine.enable_groups_of(queue.stream().context, Some(&queue));
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0], "only the preempted stream itself was used");
    rig.engine.enable_groups_of(queue.stream().context, Some(&other));
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0, 1], "the kernel in progress has to end");
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..8).collect::<Vec<_>>());
}

#[test]
fn unavailable_level_falls_back_and_is_reported() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Err(ChannelGroupError::Unsupported("one stream of a context")));
    let queue = busy(&rig, PreemptionLevel::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Device);
    let rig = TestRig::new();
    rig.gpu.state().gates = false;
    let queue = busy(&rig, PreemptionLevel::Full);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Host);
}

#[test]
fn failed_control_leaves_the_stream_running_as_before() {
    for (said, outcome) in [
        (ChannelGroupError::ContextSaveFailed, Error::ContextSaveFailed),
        (ChannelGroupError::InsufficientMemory, Error::InsufficientMemory),
        (ChannelGroupError::GpuHung, Error::GpuHung),
    ] {
        let rig = TestRig::new();
        rig.gpu.state().channel_groups = Some(Err(said));
        let queue = busy(&rig, PreemptionLevel::Full);
        assert_eq!(rig.preempt(&queue, SYNC), Err(outcome));
        assert_eq!(rig.engine.state(&queue), Some(StreamState::Running));
        rig.launch_tagged(&queue, 8);
        rig.run_to_completion();
        assert_eq!(rig.executed(&queue), (0..9).collect::<Vec<_>>());
    }
}

#[test]
fn preemption_past_its_timeout_stays_pending_and_is_rolled_back_if_the_gpu_hangs() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch(&queue, Effect::Nothing, 10_000_000, 1).unwrap();
    let request = Request { timeout_ns: 1_000_000, ..SYNC };
    assert_eq!(rig.preempt(&queue, request), Err(Error::Timeout { pending: true }));
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Preempting));
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);

    rig.restore(&queue);
    rig.launch(&queue, Effect::Nothing, 10_000_000, 2).unwrap();
    rig.gpu.state().hung = true;
    assert_eq!(rig.preempt(&queue, request), Err(Error::GpuHung));
    assert_eq!(rig.engine.state(&queue), Some(StreamState::Running));
}

#[test]
fn endless_kernel_is_taken_off_the_gpu_at_level_full() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Full);
    rig.launch(&queue, Effect::Affine { to: 1, add: 1 }, 1 << 40, 1).unwrap();
    rig.gpu.advance(1000);
    for _ in 0..3 {
        assert_eq!(rig.preempt(&queue, SYNC).unwrap().took_ns, 0);
        rig.gpu.advance(1 << 41);
        assert!(rig.executed(&queue).is_empty());
        rig.restore(&queue);
        rig.gpu.advance(1000);
    }
    rig.gpu.finish();
    assert_eq!((rig.executed(&queue), rig.gpu.read(1)), (vec![1], 1));
}

#[test]
fn non_idempotent_kernel_runs_once_at_every_level_cooperative_or_not() {
    for level in [PreemptionLevel::Host, PreemptionLevel::Device, PreemptionLevel::Full] {
        let rig = TestRig::new();
        rig.gpu.state().channel_groups = Some(Ok(()));
        let queue = rig.queue(BLOCKING, level);
        let mut expected = 0u64;
        for round in 0..500 {
            let mut command = job(Effect::Affine { to: 1, add: round }, 20_000, round);
            if let Command::Launch(launch) = &mut command {
                launch.cooperative = round % 2 == 0;
            }
            rig.command(&queue, &command).unwrap();
            expected = expected.wrapping_mul(3).wrapping_add(round);
            match round % 7 {
                2 => drop(rig.preempt(&queue, SYNC).unwrap()),
                5 => rig.restore(&queue),
                _ => drop(rig.engine.dispatch()),
            }
            rig.gpu.advance(7_000);
        }
        rig.restore(&queue);
        rig.run_to_completion();
        assert_eq!(rig.gpu.read(1), expected, "{level:?}");
    }
}

#[test]
fn fence_in_use_is_not_destroyed_by_a_concurrent_restore() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch(&queue, Effect::Nothing, 1_000_000, 1).unwrap();
    // Its fence is recorded, and not reached.
    rig.preempt(&queue, ASYNC).unwrap();
    rig.engine.dispatch();
    let fences = || rig.gpu.state().events.len();
    assert!(fences() > 0);
    let (asked, other, stream) = (Arc::new(AtomicBool::new(false)), rig.clone(), Arc::clone(&queue));
    let says = Arc::clone(&asked);
    rig.gpu.run_during(CallPoint::Query, move || {
        other.restore(&stream);
        other.engine.destroy_stream(&stream).unwrap();
        says.store(true, Ordering::Relaxed);
    });
    rig.engine.dispatch();
    assert!(asked.load(Ordering::Relaxed), "the driver was not asked");
    rig.gpu.finish();
    rig.engine.dispatch();
    assert_eq!((rig.executed(&queue), fences(), rig.engine.queue_count()), (vec![1], 0, 0));
}

#[test]
fn gates_close_while_a_thread_is_blocked_in_the_driver() {
    let rig = TestRig::new();
    let queue = busy(&rig, PreemptionLevel::Device);
    rig.gpu.state().submissions_block = true;
    let (other, stream) = (rig.clone(), Arc::clone(&queue));
    let state = std::thread::spawn(move || other.launch(&stream, Effect::Nothing, 100_000, 8).unwrap());
    while !rig.gpu.state().submission_blocked {
        std::thread::yield_now();
    }
    let hasty = Request { timeout_ns: 100_000, ..ASYNC };
    assert_eq!(rig.preempt(&queue, hasty), Err(Error::Timeout { pending: true }));
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0, 1], "only the running kernel may end");
    rig.gpu.state().submissions_block = false;
    state.join().unwrap();
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0, 1]);
    assert_eq!(rig.preempt(&queue, SYNC).unwrap().level, PreemptionLevel::Device);
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [0, 1], "closed again, the stream goes no further");
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..9).collect::<Vec<_>>());
}

#[test]
fn time_while_stopped_does_not_count_as_kernel_duration() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    let gates = || rig.gpu.state().streams[&queue.stream().handle].arrived;
    // Kernels of 10 µs, five to a gate once their duration is learned.
    let launch = |times: u64| {
        for tag in 0..times {
            rig.launch(&queue, Effect::Nothing, 10_000, tag).unwrap();
        }
    };
    launch(64);
    rig.run_to_completion();
    for _ in 0..20 {
        launch(24);
        rig.gpu.advance(100_000);
        rig.preempt(&queue, SYNC).unwrap();
        launch(8);
        rig.gpu.advance(1_000_000);
        rig.restore(&queue);
        rig.run_to_completion();
    }
    let before = gates();
    launch(200);
    rig.run_to_completion();
    let placed = gates() - before;
    assert!((35..=50).contains(&placed), "{placed} gates for 2 ms of work");
}

#[test]
fn stream_is_not_destroyed_while_it_is_checked_for_idleness() {
    let rig = TestRig::new();
    let queue = rig.stream(1, NON_BLOCKING);
    let timeout = Config { task_timeout_ns: Some(1_000_000), ..config(PreemptionLevel::Host) };
    rig.engine.enable(&queue, timeout).unwrap();
    rig.launch(&queue, Effect::Nothing, 100_000, 1).unwrap();
    rig.engine.dispatch();
    let (asked, other, stream) = (Arc::new(AtomicBool::new(false)), rig.clone(), Arc::clone(&queue));
    let says = Arc::clone(&asked);
    rig.gpu.run_during(CallPoint::Query, move || {
        other.engine.destroy_stream(&stream).unwrap();
        says.store(true, Ordering::Relaxed);
    });
    for _ in 0..8 {
        rig.gpu.advance(1_000_000);
        rig.engine.dispatch();
    }
    assert!(asked.load(Ordering::Relaxed), "the driver was not asked");
    assert_eq!((rig.gpu.state().events.len(), rig.engine.queue_count()), (0, 0));
}

#[test]
fn blocking_streams_stop_at_their_gates_while_the_legacy_one_is_stopped_too() {
    let rig = TestRig::new();
    let blocking = rig.queue(BLOCKING, PreemptionLevel::Device);
    let legacy = rig.legacy_queue(PreemptionLevel::Device);
    rig.launch_tagged(&legacy, 100);
    (0..8).for_each(|tag| rig.launch(&blocking, Effect::Nothing, 100_000, tag).unwrap());
    rig.gpu.advance(151_000);
    assert_eq!(rig.preempt(&blocking, ASYNC).unwrap().level, PreemptionLevel::Device);
    // The check whether the legacy stream has stopped is a record on it, which waits for the other stream.
    assert_eq!(rig.preempt(&legacy, ASYNC).unwrap().level, PreemptionLevel::Host);
    rig.engine.dispatch();
    rig.gpu.finish();
    assert_eq!(rig.executed(&blocking), [0, 1]);
    // A stream that runs behind that record must not wait for the restore.
    let running = rig.stream(1, BLOCKING);
    rig.launch_tagged(&running, 200);
    rig.run_to_completion();
    assert_eq!(rig.executed(&running), [200]);
    rig.restore(&blocking);
    rig.restore(&legacy);
    rig.run_to_completion();
    assert_eq!(rig.executed(&blocking), (0..8).collect::<Vec<_>>());
}
