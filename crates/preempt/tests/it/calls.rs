//! Deferred calls: what they copy, and when they are checked and made.

use std::cell::Cell;

use sluice_preempt::command::{Call, Command, Deferral, Launch, Work};
use sluice_preempt::config::PreemptionLevel;
use sluice_preempt::driver::Driver;
use sluice_preempt::ids::Code;

use crate::fake_gpu::{Effect, Job, job};
use crate::rig::{NON_BLOCKING, SYNC, TestRig};

#[test]
fn deferred_call_uses_parameters_and_pageable_bytes_of_the_time_of_the_call() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    let value = Cell::new(7);
    // As in the hook: `later` copies what the program may overwrite as soon as the call has returned.
    let launch = || Command::clone(&job(Effect::Store { to: 1, value: value.get() }, 10, 1));
    let copy = || rig.call(Job { effect: Effect::Store { to: 2, value: value.get() }, ns: 500, tag: 2 });
    for make in [&launch as &dyn Fn() -> Command, &copy] {
        let now = || rig.gpu.submit(queue.stream(), &make());
        rig.engine.submit(&queue, Work::Kernel(1), now, || Ok(Deferral::Queue(make()))).unwrap();
    }
    value.set(8);
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!((rig.gpu.read(1), rig.gpu.read(2)), (7, 7));
}

#[test]
fn deferred_closures_run_in_order_on_the_queues_stream() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    let made = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..3 {
        let made = std::sync::Arc::clone(&made);
        let make = move |stream| {
            made.lock().unwrap().push((number, stream));
            Ok(())
        };
        let call = Command::Call(Call::new(Work::Small, 8, make));
        assert_eq!(call.bytes(), 8);
        rig.engine.submit_command(&queue, &call).unwrap();
    }
    assert_eq!(*made.lock().unwrap(), []);
    rig.restore(&queue);
    rig.run_to_completion();
    let stream = queue.stream().handle;
    assert_eq!(*made.lock().unwrap(), [(0, stream), (1, stream), (2, stream)]);
}

#[test]
fn running_stream_copies_nothing() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    let never = || -> Result<Deferral, Code> { panic!("copied") };
    rig.engine.submit(&queue, Work::Small, || Ok(()), never).unwrap();
}

#[test]
fn deferred_launch_is_checked_by_the_call_itself() {
    let good = Launch { function: 1, grid: [1; 3], block: [32, 32, 1], ..Launch::default() };
    assert_eq!(good.check(), Ok(()));
    assert_eq!(Launch { function: 0, ..good.clone() }.check(), Err(Code::INVALID_HANDLE));
    for bad in [
        Launch { grid: [0, 1, 1], ..good.clone() },
        Launch { block: [1024, 2, 1], ..good.clone() },
        Launch { block: [u32::MAX, u32::MAX, 1], ..good.clone() },
    ] {
        assert_eq!(bad.check(), Err(Code::INVALID_VALUE), "{bad:?}");
    }
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    let later = || Launch { grid: [0; 3], ..good }.check().map(|()| panic!("queued"));
    assert_eq!(rig.engine.submit(&queue, Work::Small, || Ok(()), later), Err(Code::INVALID_VALUE));
    assert_eq!(rig.engine.pending_commands(&queue), 0);
}

#[test]
fn deferred_launch_uses_memory_allocated_while_the_stream_was_preempted() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    // The hook makes the allocation itself, whatever the stream's state.
    let address = 4711;
    rig.launch(&queue, Effect::Store { to: address, value: 5 }, 10, 1).unwrap();
    let free = rig.call(Job { effect: Effect::Nothing, ns: 0, tag: 0 });
    rig.command(&queue, &free).unwrap();
    assert_eq!(rig.submitted(&queue), 0);
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.gpu.read(4711), 5);
}

#[test]
fn destroyed_graph_lives_until_its_last_pending_launch() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.gpu.state().graphs.insert(9, Vec::new());
    rig.preempt(&queue, SYNC).unwrap();
    for tag in 0..2 {
        rig.command(&queue, &Command::Graph(9)).unwrap();
        rig.launch_tagged(&queue, tag);
    }
    rig.engine.destroy_graph(9).unwrap();
    assert!(rig.gpu.state().graphs.contains_key(&9));
    rig.restore(&queue);
    rig.run_to_completion();
    assert!(!rig.gpu.state().graphs.contains_key(&9));
    assert_eq!(rig.executed(&queue), [0, 1]);
    assert_eq!(rig.engine.destroy_graph(9), Err(Code::INVALID_HANDLE));
}

#[test]
fn destroyed_graph_lives_until_the_last_pending_call_that_uses_it() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.gpu.state().graphs.insert(9, Vec::new());
    rig.preempt(&queue, SYNC).unwrap();
    let gpu = rig.gpu.clone();
    let upload =
        move |_| if gpu.state().graphs.contains_key(&9) { Ok(()) } else { Err(Code::INVALID_HANDLE) };
    let upload = Command::Call(Call::new(Work::Small, 0, upload).with_graph(Some(9)));
    rig.command(&queue, &upload).unwrap();
    rig.engine.destroy_graph(9).unwrap();
    rig.restore(&queue);
    rig.run_to_completion();
    assert_eq!(rig.engine.synchronize_stream(&queue), Ok(()), "the driver was given a destroyed graph");
    assert!(!rig.gpu.state().graphs.contains_key(&9));
}

#[test]
fn host_functions_run_once_and_in_order() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Device);
    for round in 0..20 {
        rig.preempt(&queue, SYNC).unwrap();
        for data in 0..10 {
            rig.launch(&queue, Effect::Host(round * 10 + data), 0, 0).unwrap();
        }
        rig.gpu.finish();
        assert_eq!(
            rig.gpu.state().host_calls.len() as u64,
            round * 10,
            "a host function ran while the stream was preempted"
        );
        rig.restore(&queue);
        rig.run_to_completion();
    }
    assert_eq!(rig.gpu.state().host_calls, (0..200).collect::<Vec<_>>());
}

#[test]
fn destroy_of_preempted_stream_returns_at_once_and_its_work_completes_later() {
    let rig = TestRig::new();
    let destroyed = |handle| rig.gpu.state().streams[&handle].destroyed;
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.preempt(&queue, SYNC).unwrap();
    (0..10).for_each(|tag| rig.launch_tagged(&queue, tag));
    rig.engine.destroy_stream(&queue).unwrap();
    assert!(!destroyed(queue.stream().handle));
    assert_eq!(rig.launch(&queue, Effect::Nothing, 1, 11), Err(Code::INVALID_HANDLE));
    assert_eq!(rig.engine.destroy_stream(&queue), Err(Code::INVALID_HANDLE));
    rig.engine.restore_all();
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), (0..10).collect::<Vec<_>>());
    assert!(destroyed(queue.stream().handle));
    assert_eq!(rig.engine.queue_count(), 0);
}
