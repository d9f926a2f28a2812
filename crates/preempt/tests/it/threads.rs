//! Real threads: callers, a worker, and the GPU's time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use sluice_preempt::command::{Deferral, Work};
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::Request;
use sluice_preempt::outcome::Error;
use sluice_preempt::stream_state::StreamState;

use crate::fake_gpu::Effect;
use crate::rig::{ASYNC, BLOCKING, NON_BLOCKING, SYNC, TestRig, config};

/// Waits until `done`; other threads run.
fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

#[test]
fn waits_for_a_preempted_stream_end_when_it_is_restored() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    let event = rig.event();
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    rig.engine.record(&queue, event).unwrap();
    let context = queue.stream().context;
    let (ended, waits) = mpsc::channel();
    type Call = Box<dyn Fn(&TestRig) + Send>;
    let calls: [Call; 3] = [
        Box::new({
            let queue = Arc::clone(&queue);
            move |rig| rig.engine.synchronize_stream(&queue).unwrap()
        }),
        Box::new(move |rig| rig.engine.synchronize_event(event).unwrap()),
        Box::new(move |rig| rig.engine.flush_context(context).unwrap()),
    ];
    thread::scope(|scope| {
        for call in calls {
            let (rig, ended) = (rig.clone(), ended.clone());
            scope.spawn(move || {
                call(&rig);
                ended.send(()).unwrap();
            });
        }
        until(|| rig.engine.blocked_threads() == 3);
        rig.engine.dispatch();
        assert!(waits.try_recv().is_err(), "a wait ended while the stream was preempted");
        rig.restore(&queue);
        rig.engine.dispatch();
        (0..3).for_each(|_| waits.recv().unwrap());
    });
    rig.gpu.finish();
    assert_eq!(rig.executed(&queue), [1]);
}

#[test]
fn full_host_queue_makes_the_caller_wait_and_refuses_nothing() {
    for limit in [
        Config { host_commands: 8, ..config(PreemptionLevel::Host) },
        Config { host_bytes: 8 * 40, ..config(PreemptionLevel::Host) },
    ] {
        let rig = TestRig::new();
        let queue = rig.stream(1, NON_BLOCKING);
        rig.engine.enable(&queue, limit).unwrap();
        rig.preempt(&queue, SYNC).unwrap();
        (0..8).for_each(|tag| rig.launch_tagged(&queue, tag));
        thread::scope(|scope| {
            scope.spawn(|| (8..20).for_each(|tag| rig.launch_tagged(&queue, tag)));
            until(|| rig.engine.blocked_threads() == 1);
            assert_eq!((rig.engine.pending_commands(&queue), rig.submitted(&queue)), (8, 0));
            rig.restore(&queue);
            let _alive = rig.start_worker();
            until(|| rig.submitted(&queue) == 20);
        });
        rig.run_to_completion();
        assert_eq!(rig.executed(&queue), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn sixteen_threads_on_their_own_streams_keep_their_order() {
    let rig = TestRig::new();
    let queues: Vec<_> = (0..16).map(|_| rig.queue(BLOCKING, PreemptionLevel::Device)).collect();
    let legacy = rig.legacy_queue(PreemptionLevel::Host);
    let worker = rig.start_worker();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = queues
            .iter()
            .enumerate()
            .map(|(n, queue)| {
                let rig = &rig;
                scope.spawn(move || {
                    for tag in 0..200 {
                        rig.launch(queue, Effect::Affine { to: n as u64, add: tag }, 5_000, tag).unwrap();
                    }
                    rig.engine.synchronize_stream(queue).unwrap();
                })
            })
            .collect();
        scope.spawn(|| (0..50).for_each(|tag| rig.launch(&legacy, Effect::Nothing, 1000, tag).unwrap()));
        scope.spawn(|| {
            for queue in queues.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                rig.preempt(queue, ASYNC).unwrap();
                thread::yield_now();
                rig.restore(queue);
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    drop(worker);
    rig.run_to_completion();
    let expected = (0..200u64).fold(0u64, |value, add| value.wrapping_mul(3).wrapping_add(add));
    for (n, queue) in queues.iter().enumerate() {
        assert_eq!(rig.executed(queue), (0..200).collect::<Vec<_>>());
        assert_eq!(rig.gpu.read(n as u64), expected);
    }
    assert_eq!(rig.executed(&legacy), (0..50).collect::<Vec<_>>());
}

#[test]
fn last_call_wins_between_preempt_and_restore() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    let worker = rig.start_worker();
    for round in 0..300 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = rig.preempt(&queue, SYNC);
            });
            scope.spawn(|| rig.restore(&queue));
            scope.spawn(|| rig.launch_tagged(&queue, round));
        });
        // Whichever call was last, one that follows both decides.
        rig.preempt(&queue, SYNC).unwrap();
        assert_eq!(rig.engine.state(&queue), Some(StreamState::Preempted));
        let submitted = rig.submitted(&queue);
        rig.engine.dispatch();
        assert_eq!(rig.submitted(&queue), submitted);
        rig.restore(&queue);
    }
    drop(worker);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..300).collect::<Vec<_>>());
}

#[test]
fn preempt_waits_for_a_call_in_the_driver_up_to_its_timeout() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (rig, queue) = (&rig, &queue);
        scope.spawn(move || {
            let now = || {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
                Ok(())
            };
            rig.engine.submit(queue, Work::Small, now, || Ok(Deferral::ByCaller)).unwrap();
        });
        has_entered.recv().unwrap();
        let request = Request { timeout_ns: 1_000_000, ..ASYNC };
        assert_eq!(rig.preempt(queue, request), Err(Error::Timeout { pending: true }));
        leave.send(()).unwrap();
    });
    assert!(rig.preempt(&queue, SYNC).unwrap().stopped);
}

#[test]
fn forked_child_calls_the_driver_directly_and_nothing_waits() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    rig.engine.abandon();
    rig.launch_tagged(&queue, 2);
    assert_eq!(rig.submitted(&queue), 1);
    rig.engine.synchronize_stream(&queue).unwrap();
    assert_eq!(rig.executed(&queue), [2]);
}
