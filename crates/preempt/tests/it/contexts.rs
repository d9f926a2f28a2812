//! Contexts that end, or survive the call that might have ended them, while other threads work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::engine::NextDispatch;
use sluice_preempt::ids::{Context, Event};
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use crate::fake_gpu::{CallPoint, Effect};
use crate::rig::{ASYNC, NON_BLOCKING, SYNC, TestRig, config};

const MS: u64 = 1_000_000;
const FIRST: Context = Context(1);

/// A preempted stream of context 2 behind a recorded event of context 1.
fn waits_for_another_context(rig: &TestRig) -> (Arc<Queue>, Event) {
    let (recorder, waiter) = (rig.stream(1, NON_BLOCKING), rig.stream(2, NON_BLOCKING));
    rig.engine.enable(&waiter, config(PreemptionLevel::Host)).unwrap();
    rig.preempt(&waiter, SYNC).unwrap();
    let event = rig.event();
    rig.launch_tagged(&recorder, 1);
    rig.engine.record(&recorder, event).unwrap();
    rig.engine.wait(&waiter, event).unwrap();
    rig.launch_tagged(&waiter, 7);
    (waiter, event)
}

#[test]
fn wait_for_event_of_ended_context_is_skipped_without_a_driver_call() {
    for destroyed in [false, true] {
        let rig = TestRig::new();
        let (waiter, event) = waits_for_another_context(&rig);
        if destroyed {
            rig.engine.destroy_event(event).unwrap();
        }
        rig.end_context(1);
        rig.restore(&waiter);
        rig.run_to_completion();
        assert_eq!(rig.executed(&waiter), [7]);
        assert_eq!(rig.engine.generation_count(), 0, "the event's");
    }
}

/// Ends context 1 from another thread during the given driver call. The call goes on when that thread waits, or has
/// finished. Returns a function that joins the thread.
fn ends_during(rig: &TestRig, call: CallPoint) -> impl FnOnce() + use<> {
    let program = Arc::new(Mutex::new(None));
    let (other, starts, asked) = (rig.clone(), Arc::clone(&program), rig.gpu.clone());
    rig.gpu.run_during(call, move || {
        let (ends, ended) = (other.clone(), Arc::new(AtomicBool::new(false)));
        let (says, before) = (Arc::clone(&ended), other.gpu.state().pauses);
        *starts.lock().unwrap() = Some(thread::spawn(move || {
            ends.engine.begin_context_end(FIRST);
            ends.gpu.end_context(1);
            says.store(true, Ordering::SeqCst);
            ends.engine.finish_context_end(FIRST);
        }));
        let waits = || other.engine.blocked_threads() > 0 || other.gpu.state().pauses > before + 2;
        while !waits() && !ended.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
    move || {
        assert!(asked.was_interrupted(call), "the engine did not make the call");
        program.lock().unwrap().take().unwrap().join().unwrap();
    }
}

#[test]
fn context_does_not_end_while_the_worker_makes_another_contexts_stream_wait_for_its_event() {
    for destroyed in [false, true] {
        let rig = TestRig::new();
        let (waiter, event) = waits_for_another_context(&rig);
        if destroyed {
            rig.engine.destroy_event(event).unwrap();
        }
        let join = ends_during(&rig, CallPoint::Wait);
        rig.restore(&waiter);
        rig.engine.dispatch();
        join();
        rig.run_to_completion();
        assert_eq!(rig.executed(&waiter), [7]);
        assert!(
            !rig.gpu.state().destroyed_events.contains(&event.0),
            "the event was destroyed although it had ended with its context"
        );
    }
}

#[test]
fn context_does_not_end_during_a_driver_use_of_its_stream() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch(&queue, Effect::Nothing, MS, 1).unwrap();
    rig.preempt(&queue, ASYNC).unwrap();
    let join = ends_during(&rig, CallPoint::Query);
    rig.engine.dispatch();
    join();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![1], 0));
}

#[test]
fn context_does_not_end_before_its_channel_group_is_enabled() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Full);
    rig.launch(&queue, Effect::Nothing, MS, 1).unwrap();
    assert_eq!(rig.preempt(&queue, ASYNC).unwrap().level, PreemptionLevel::Full);
    let join = ends_during(&rig, CallPoint::EnableGroup);
    rig.restore(&queue);
    join();
    assert_eq!((rig.executed(&queue), rig.engine.queue_count()), (vec![1], 0));
}

#[test]
fn worker_waits_for_no_event_while_a_context_may_be_ending() {
    let rig = TestRig::new();
    let (waiter, _) = waits_for_another_context(&rig);
    rig.engine.begin_context_end(FIRST);
    rig.gpu.state().ended.insert(1);
    rig.restore(&waiter);
    rig.engine.dispatch();
    assert_eq!(rig.engine.pending_commands(&waiter), 2);
    rig.gpu.state().ended.clear();
    rig.engine.cancel_context_end(FIRST);
    rig.run_to_completion();
    assert_eq!(rig.executed(&waiter), [7]);
}

/// Context 1 may be ending. Two commands were called in between; the queue's bound allows only the first.
fn kept_back() -> (TestRig, Arc<Queue>) {
    let rig = TestRig::new();
    let queue = rig.stream(1, NON_BLOCKING);
    let narrow = Config { queue_size: 1, batch_size: 1, ..config(PreemptionLevel::Host) };
    rig.engine.enable(&queue, narrow).unwrap();
    rig.engine.begin_context_end(FIRST);
    (0..2).for_each(|tag| rig.launch_tagged(&queue, tag));
    (rig, queue)
}

#[test]
fn bounded_command_waits_until_the_context_is_known_to_survive() {
    let (rig, queue) = kept_back();
    assert_eq!(rig.engine.pending_commands(&queue), 1);
    rig.gpu.finish();
    rig.gpu.state().ended.insert(1);
    rig.engine.dispatch();
    assert_eq!(rig.engine.pending_commands(&queue), 1);
    rig.gpu.state().ended.clear();
    rig.engine.cancel_context_end(FIRST);
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), [0, 1]);
}

#[test]
fn second_thread_that_may_end_a_context_proceeds_after_the_first_did_not() {
    let (rig, queue) = kept_back();
    let (other, before) = (rig.clone(), rig.gpu.state().pauses);
    let second = thread::spawn(move || {
        other.engine.begin_context_end(FIRST);
        other.engine.cancel_context_end(FIRST);
    });
    let pauses = || rig.gpu.state().pauses;
    while pauses() == before {
        thread::yield_now();
    }
    rig.engine.cancel_context_end(FIRST);
    rig.gpu.finish();
    while !second.is_finished() {
        assert!(pauses() < before + 1_000_000, "the second thread waits without end");
        thread::yield_now();
    }
    rig.run_to_completion();
    assert_eq!(rig.executed(&queue), [0, 1]);
}

#[test]
fn unknown_event_may_reuse_the_handle_of_one_that_ended_with_its_context() {
    let rig = TestRig::new();
    let (waiter, event) = waits_for_another_context(&rig);
    rig.engine.destroy_event(event).unwrap();
    rig.end_context(1);
    rig.gpu.state().destroyed_events.clear();
    rig.gpu.state().event_contexts.clear();
    let queue = rig.stream(1, NON_BLOCKING);
    rig.engine.record(&queue, event).unwrap();
    rig.restore(&waiter);
    rig.run_to_completion();
    assert_eq!(rig.engine.query_event(event), Ok(()));
}

#[test]
fn next_context_with_the_same_handle_gets_no_events_of_the_previous_one() {
    let rig = TestRig::new();
    for round in 0..3 {
        let (recorder, waiter) =
            (rig.stream(1, NON_BLOCKING), rig.queue(NON_BLOCKING, PreemptionLevel::Host));
        rig.preempt(&waiter, SYNC).unwrap();
        let event = rig.event();
        // Each record but the first needs an event of the pool, since waits still use the earlier records.
        for _ in 0..3 {
            rig.launch_tagged(&recorder, round);
            rig.engine.record(&recorder, event).unwrap();
            rig.engine.wait(&waiter, event).unwrap();
        }
        rig.restore(&waiter);
        rig.run_to_completion();
        rig.end_context(1);
        assert_eq!((rig.engine.queue_count(), rig.engine.generation_count()), (0, 0));
    }
}

#[test]
fn nothing_of_a_context_is_used_during_a_driver_call_that_may_end_it() {
    let rig = TestRig::new();
    rig.gpu.state().channel_groups = Some(Ok(()));
    let held = rig.queue(NON_BLOCKING, PreemptionLevel::Full);
    let watched = rig.stream(1, NON_BLOCKING);
    let timeout = Config { task_timeout_ns: Some(MS), ..config(PreemptionLevel::Device) };
    rig.engine.enable(&watched, timeout).unwrap();
    let elsewhere = rig.stream(2, NON_BLOCKING);
    rig.engine.enable(&elsewhere, config(PreemptionLevel::Host)).unwrap();
    for queue in [&held, &watched] {
        (0..4).for_each(|tag| rig.launch(queue, Effect::Nothing, MS, tag).unwrap());
        rig.preempt(queue, ASYNC).unwrap();
        rig.launch_tagged(queue, 4);
    }
    rig.engine.begin_context_end(FIRST);
    assert_eq!((rig.engine.pending_commands(&held), rig.engine.pending_commands(&watched)), (0, 0));
    // The driver's call is in progress.
    rig.gpu.state().ended.insert(1);
    for queue in [&held, &watched] {
        assert_eq!(rig.preempt(queue, SYNC), Err(Error::Closing));
        assert_eq!(rig.engine.with_stream(queue, || ()), None);
        rig.engine.restore(queue).unwrap();
    }
    rig.preempt(&elsewhere, SYNC).unwrap();
    rig.launch_tagged(&elsewhere, 1);
    rig.restore(&elsewhere);
    for _ in 0..4 {
        rig.gpu.advance(2 * MS);
        rig.engine.dispatch();
    }
    assert_eq!(rig.executed(&elsewhere), [1], "other contexts have to go on");
    // The call has not ended the context.
    rig.gpu.state().ended.clear();
    rig.engine.cancel_context_end(FIRST);
    rig.preempt(&held, SYNC).unwrap();
    rig.launch_tagged(&held, 5);
    assert_eq!(rig.engine.pending_commands(&held), 1);
    rig.restore(&held);
    rig.run_to_completion();
    assert_eq!((rig.executed(&held), rig.executed(&watched)), ((0..6).collect(), (0..5).collect()));
}

#[test]
fn stream_destroyed_while_its_context_might_end_is_destroyed_once_the_context_survives() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.launch_tagged(&queue, 1);
    rig.run_to_completion();
    rig.engine.begin_context_end(FIRST);
    rig.engine.destroy_stream(&queue).unwrap();
    assert!(!rig.gpu.state().streams[&queue.stream().handle].destroyed);
    rig.engine.cancel_context_end(FIRST);
    assert!(rig.gpu.state().streams[&queue.stream().handle].destroyed);
    assert_eq!((rig.gpu.state().events.len(), rig.engine.queue_count()), (0, 0));
}

#[test]
fn threads_that_wait_for_a_stream_return_when_its_context_has_ended() {
    let rig = TestRig::new();
    let queue = rig.queue(NON_BLOCKING, PreemptionLevel::Host);
    rig.engine.begin_context_end(FIRST);
    rig.engine.cancel_context_end(FIRST);
    rig.preempt(&queue, SYNC).unwrap();
    rig.launch_tagged(&queue, 1);
    let other = rig.clone();
    let waiting = thread::spawn(move || other.engine.flush_context(FIRST));
    while rig.engine.blocked_threads() == 0 {
        thread::yield_now();
    }
    // Without `begin_context_end` before: the device was reset.
    rig.gpu.end_context(1);
    rig.engine.finish_context_end(FIRST);
    waiting.join().unwrap().unwrap();
    assert_eq!((rig.engine.dispatch(), rig.engine.queue_count()), (NextDispatch::WhenWoken, 0));
}
