//! Contexts that end, or do not, while other threads are at work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sluice_preempt::config::{Config, Level};
use sluice_preempt::engine::Next;
use sluice_preempt::ids::{Context, Event};
use sluice_preempt::outcome::Error;
use sluice_preempt::queue::Queue;

use crate::gpu::{During, Effect};
use crate::rig::{ASYNC, NON_BLOCKING, Rig, SYNC, config};

const MS: u64 = 1_000_000;
const FIRST: Context = Context(1);

/// A preempted stream of context 2 behind an event of context 1, which has been recorded.
fn waits_for_another_context(rig: &Rig) -> (Arc<Queue>, Event) {
    let (recorder, waiter) = (rig.plain(1, NON_BLOCKING), rig.plain(2, NON_BLOCKING));
    rig.engine.enable(&waiter, config(Level::Host)).unwrap();
    rig.preempt(&waiter, SYNC).unwrap();
    let event = rig.event();
    rig.tag(&recorder, 1);
    rig.engine.record(&recorder, event).unwrap();
    rig.engine.wait(&waiter, event).unwrap();
    rig.tag(&waiter, 7);
    (waiter, event)
}

#[test]
fn what_waits_for_an_event_of_a_context_that_has_ended_goes_on_without_asking_for_it() {
    for destroyed in [false, true] {
        let rig = Rig::new();
        let (waiter, event) = waits_for_another_context(&rig);
        if destroyed {
            rig.engine.destroy_event(event).unwrap();
        }
        rig.end_context(1);
        rig.restore(&waiter);
        rig.settle();
        assert_eq!(rig.ran(&waiter), [7]);
        assert_eq!(rig.engine.generations(), 0, "the event's");
    }
}

/// Has another thread end context 1 in the middle of such a call, which goes on when that thread waits, or has not waited; its end.
fn ends_during(rig: &Rig, call: During) -> impl FnOnce() + use<> {
    let program = Arc::new(Mutex::new(None));
    let (other, starts, asked) = (rig.clone(), Arc::clone(&program), rig.gpu.clone());
    rig.gpu.during(call, move || {
        let (ends, ended) = (other.clone(), Arc::new(AtomicBool::new(false)));
        let (says, before) = (Arc::clone(&ended), other.gpu.inside().pauses);
        *starts.lock().unwrap() = Some(thread::spawn(move || {
            ends.engine.context_ends(FIRST);
            ends.gpu.end_context(1);
            says.store(true, Ordering::SeqCst);
            ends.engine.context_ended(FIRST);
        }));
        let waits = || other.engine.blocked_threads() > 0 || other.gpu.inside().pauses > before + 2;
        while !waits() && !ended.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
    move || {
        assert!(asked.was_there(call), "nobody called");
        program.lock().unwrap().take().unwrap().join().unwrap();
    }
}

#[test]
fn a_context_does_not_end_while_the_worker_has_a_stream_of_another_wait_for_its_event() {
    for destroyed in [false, true] {
        let rig = Rig::new();
        let (waiter, event) = waits_for_another_context(&rig);
        if destroyed {
            rig.engine.destroy_event(event).unwrap();
        }
        let join = ends_during(&rig, During::Wait);
        rig.restore(&waiter);
        rig.engine.pump();
        join();
        rig.settle();
        assert_eq!(rig.ran(&waiter), [7]);
        assert!(!rig.gpu.inside().destroyed_events.contains(&event.0), "it ended with its context");
    }
}

#[test]
fn a_context_does_not_end_while_a_stream_of_it_is_looked_at() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.launch(&queue, Effect::Nothing, MS, 1).unwrap();
    rig.preempt(&queue, ASYNC).unwrap();
    let join = ends_during(&rig, During::Query);
    rig.engine.pump();
    join();
    assert_eq!((rig.ran(&queue), rig.engine.queues()), (vec![1], 0));
}

#[test]
fn a_context_does_not_end_before_the_gpu_has_been_given_back_to_it() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    let queue = rig.queue(NON_BLOCKING, Level::Full);
    rig.launch(&queue, Effect::Nothing, MS, 1).unwrap();
    assert_eq!(rig.preempt(&queue, ASYNC).unwrap().level, Level::Full);
    let join = ends_during(&rig, During::Release);
    rig.restore(&queue);
    join();
    assert_eq!((rig.ran(&queue), rig.engine.queues()), (vec![1], 0));
}

#[test]
fn no_event_is_waited_for_by_the_worker_while_a_context_might_be_ending() {
    let rig = Rig::new();
    let (waiter, _) = waits_for_another_context(&rig);
    rig.engine.context_ends(FIRST);
    rig.gpu.inside().ended.insert(1);
    rig.restore(&waiter);
    rig.engine.pump();
    assert_eq!(rig.engine.waiting(&waiter), 2);
    rig.gpu.inside().ended.clear();
    rig.engine.context_stays(FIRST);
    rig.settle();
    assert_eq!(rig.ran(&waiter), [7]);
}

/// Context 1 may be ending; meanwhile two commands were called, of which the queue's bound keeps the second back.
fn kept_back() -> (Rig, Arc<Queue>) {
    let rig = Rig::new();
    let queue = rig.plain(1, NON_BLOCKING);
    let narrow = Config { queue_size: 1, batch_size: 1, adaptive: false, ..config(Level::Host) };
    rig.engine.enable(&queue, narrow).unwrap();
    rig.engine.context_ends(FIRST);
    (0..2).for_each(|tag| rig.tag(&queue, tag));
    (rig, queue)
}

#[test]
fn what_a_bound_keeps_back_waits_until_the_context_has_not_ended() {
    let (rig, queue) = kept_back();
    assert_eq!(rig.engine.waiting(&queue), 1);
    rig.gpu.finish();
    rig.gpu.inside().ended.insert(1);
    rig.engine.pump();
    assert_eq!(rig.engine.waiting(&queue), 1);
    rig.gpu.inside().ended.clear();
    rig.engine.context_stays(FIRST);
    rig.settle();
    assert_eq!(rig.ran(&queue), [0, 1]);
}

#[test]
fn a_second_thread_that_may_end_a_context_comes_through_when_the_first_has_not() {
    let (rig, queue) = kept_back();
    let (other, before) = (rig.clone(), rig.gpu.inside().pauses);
    let second = thread::spawn(move || {
        other.engine.context_ends(FIRST);
        other.engine.context_stays(FIRST);
    });
    let pauses = || rig.gpu.inside().pauses;
    while pauses() == before {
        thread::yield_now();
    }
    rig.engine.context_stays(FIRST);
    rig.gpu.finish();
    while !second.is_finished() {
        assert!(pauses() < before + 1_000_000, "the second waits for ever");
        thread::yield_now();
    }
    rig.settle();
    assert_eq!(rig.ran(&queue), [0, 1]);
}

#[test]
fn an_event_of_which_nobody_told_may_have_the_handle_of_one_that_ended_with_its_context() {
    let rig = Rig::new();
    let (waiter, event) = waits_for_another_context(&rig);
    rig.engine.destroy_event(event).unwrap();
    rig.end_context(1);
    rig.gpu.inside().destroyed_events.clear();
    rig.gpu.inside().event_contexts.clear();
    let queue = rig.plain(1, NON_BLOCKING);
    rig.engine.record(&queue, event).unwrap();
    rig.restore(&waiter);
    rig.settle();
    assert_eq!(rig.engine.query_event(event), Ok(()));
}

#[test]
fn the_next_context_of_the_same_handle_is_given_no_events_of_the_one_before() {
    let rig = Rig::new();
    for round in 0..3 {
        let (recorder, waiter) = (rig.plain(1, NON_BLOCKING), rig.queue(NON_BLOCKING, Level::Host));
        rig.preempt(&waiter, SYNC).unwrap();
        let event = rig.event();
        // Each record but the first needs an event of the engine's, since what was recorded before is still meant.
        for _ in 0..3 {
            rig.tag(&recorder, round);
            rig.engine.record(&recorder, event).unwrap();
            rig.engine.wait(&waiter, event).unwrap();
        }
        rig.restore(&waiter);
        rig.settle();
        rig.end_context(1);
        assert_eq!((rig.engine.queues(), rig.engine.generations()), (0, 0));
    }
}

#[test]
fn nothing_of_a_context_is_used_while_a_call_of_the_drivers_may_end_it() {
    let rig = Rig::new();
    rig.gpu.inside().slices = Some(Ok(()));
    let held = rig.queue(NON_BLOCKING, Level::Full);
    let watched = rig.plain(1, NON_BLOCKING);
    let timeout = Config { task_timeout_ns: Some(MS), ..config(Level::Device) };
    rig.engine.enable(&watched, timeout).unwrap();
    let elsewhere = rig.plain(2, NON_BLOCKING);
    rig.engine.enable(&elsewhere, config(Level::Host)).unwrap();
    for queue in [&held, &watched] {
        (0..4).for_each(|tag| rig.launch(queue, Effect::Nothing, MS, tag).unwrap());
        rig.preempt(queue, ASYNC).unwrap();
        rig.tag(queue, 4);
    }
    rig.engine.context_ends(FIRST);
    assert_eq!((rig.engine.waiting(&held), rig.engine.waiting(&watched)), (0, 0));
    // The driver's call is under way.
    rig.gpu.inside().ended.insert(1);
    for queue in [&held, &watched] {
        assert_eq!(rig.preempt(queue, SYNC), Err(Error::Closing));
        assert_eq!(rig.engine.with_stream(queue, || ()), None);
        rig.engine.restore(queue).unwrap();
    }
    rig.preempt(&elsewhere, SYNC).unwrap();
    rig.tag(&elsewhere, 1);
    rig.restore(&elsewhere);
    for _ in 0..4 {
        rig.gpu.advance(2 * MS);
        rig.engine.pump();
    }
    assert_eq!(rig.ran(&elsewhere), [1], "other contexts go on");
    // It has not ended it.
    rig.gpu.inside().ended.clear();
    rig.engine.context_stays(FIRST);
    rig.preempt(&held, SYNC).unwrap();
    rig.tag(&held, 5);
    assert_eq!(rig.engine.waiting(&held), 1);
    rig.restore(&held);
    rig.settle();
    assert_eq!((rig.ran(&held), rig.ran(&watched)), ((0..6).collect(), (0..5).collect()));
}

#[test]
fn a_stream_destroyed_while_its_context_might_have_ended_is_destroyed_when_it_has_not() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.tag(&queue, 1);
    rig.settle();
    rig.engine.context_ends(FIRST);
    rig.engine.destroy_stream(&queue).unwrap();
    assert!(!rig.gpu.inside().lanes[&queue.stream().handle].destroyed);
    rig.engine.context_stays(FIRST);
    assert!(rig.gpu.inside().lanes[&queue.stream().handle].destroyed);
    assert_eq!((rig.gpu.inside().events.len(), rig.engine.queues()), (0, 0));
}

#[test]
fn threads_that_wait_for_a_stream_go_on_when_its_context_has_ended() {
    let rig = Rig::new();
    let queue = rig.queue(NON_BLOCKING, Level::Host);
    rig.engine.context_ends(FIRST);
    rig.engine.context_stays(FIRST);
    rig.preempt(&queue, SYNC).unwrap();
    rig.tag(&queue, 1);
    let other = rig.clone();
    let waiting = thread::spawn(move || other.engine.settle_context(FIRST));
    while rig.engine.blocked_threads() == 0 {
        thread::yield_now();
    }
    // Without a word before: the device was reset.
    rig.gpu.end_context(1);
    rig.engine.context_ended(FIRST);
    waiting.join().unwrap().unwrap();
    assert_eq!((rig.engine.pump(), rig.engine.queues()), (Next::Idle, 0));
}
