//! The submission gate in loom's model, with the whole engine around it: every interleaving of callers, preempter and worker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sluice-preempt --test loom_door --release`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sluice_preempt::command::{Call, Command, Work};
use sluice_preempt::config::Config;
use sluice_preempt::driver::{Clock, Driver, EventFlags, Observer};
use sluice_preempt::engine::{Engine, Request};
use sluice_preempt::ids::{Code, Context, Event, Stream};
use sluice_preempt::queue::Queue;
use sluice_preempt::worker::Bell;

/// A driver that counts commands and is done with them at once.
#[derive(Debug)]
struct Counting;

impl Driver for Counting {
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code> {
        let Command::Call(call) = command else { return Ok(()) };
        call.make(stream.handle)
    }
    fn record(&self, _: Stream, _: Event) -> Result<(), Code> {
        Ok(())
    }
    fn wait(&self, _: Stream, _: Event) -> Result<(), Code> {
        Ok(())
    }
    fn create_event(&self, _: Context, _: EventFlags) -> Result<Event, Code> {
        Ok(Event(1))
    }
    fn destroy_event(&self, _: Event) -> Result<(), Code> {
        Ok(())
    }
    fn query_event(&self, _: Event) -> Result<(), Code> {
        Ok(())
    }
    fn synchronize_event(&self, _: Event) -> Result<(), Code> {
        Ok(())
    }
    fn elapsed_ns(&self, _: Event, _: Event) -> Result<u64, Code> {
        Ok(1)
    }
    fn query_stream(&self, _: Stream) -> Result<(), Code> {
        Ok(())
    }
    fn synchronize_stream(&self, _: Stream) -> Result<(), Code> {
        Ok(())
    }
    fn destroy_stream(&self, _: Stream) -> Result<(), Code> {
        Ok(())
    }
    fn destroy_graph(&self, _: u64) -> Result<(), Code> {
        Ok(())
    }
    fn is_capturing(&self, _: Stream) -> bool {
        false
    }
    fn relax(&self, _: bool) -> bool {
        true
    }
}

/// Time does not matter: whoever waits lets the others run.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
    fn pause(&self, _: u64) {
        thread::yield_now();
    }
}

#[derive(Debug, Clone)]
struct Rings(Arc<Bell>);

impl Observer for Rings {
    fn wake(&self) {
        self.0.ring();
    }
}

type Model = Engine<Counting, Still, Rings>;

struct Parts {
    engine: Arc<Model>,
    queue: Arc<Queue>,
    submitted: Arc<AtomicUsize>,
    bell: Arc<Bell>,
}

fn parts(adaptive: bool) -> Parts {
    let submitted = Arc::new(AtomicUsize::new(0));
    let bell = Arc::new(Bell::default());
    let engine = Arc::new(Engine::new(Counting, Still, Rings(Arc::clone(&bell))));
    let queue = engine.queue(Stream { context: Context(1), handle: 5, blocking: false });
    engine.enable(&queue, Config { adaptive, ..Config::default() }).unwrap();
    Parts { engine, queue, submitted, bell }
}

/// A command that asserts that exactly `number` commands reached the driver before it.
fn numbered(submitted: &Arc<AtomicUsize>, number: u64) -> Command {
    let submitted = Arc::clone(submitted);
    Command::Call(Call::new(Work::Small, 0, move |_| {
        assert_eq!(submitted.fetch_add(1, Ordering::SeqCst) as u64, number);
        Ok(())
    }))
}

impl Parts {
    fn caller(&self, commands: u64) -> thread::JoinHandle<()> {
        let (engine, queue) = (Arc::clone(&self.engine), Arc::clone(&self.queue));
        let submitted = Arc::clone(&self.submitted);
        thread::spawn(move || {
            (0..commands).for_each(|n| engine.command(&queue, &numbered(&submitted, n)).unwrap());
        })
    }

    fn submitted(&self) -> usize {
        self.submitted.load(Ordering::SeqCst)
    }
}

fn model(test: fn()) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

/// G1: what a preempter has seen submitted when `preempt` returned is all there is until it restores.
fn nothing_after_preempt(adaptive: bool) {
    let parts = parts(adaptive);
    let caller = parts.caller(2);
    parts.engine.preempt(&parts.queue, Request::default()).unwrap();
    let at_return = parts.submitted();
    thread::yield_now();
    assert_eq!(parts.submitted(), at_return);
    caller.join().unwrap();
    assert_eq!(parts.submitted(), at_return);
    parts.engine.restore(&parts.queue).unwrap();
    parts.engine.pump();
    assert_eq!(parts.submitted(), 2);
}

#[test]
fn nothing_reaches_the_driver_after_preempt_has_returned() {
    model(|| nothing_after_preempt(true));
}

#[test]
fn nothing_reaches_the_driver_after_preempt_has_returned_while_commands_are_counted() {
    model(|| nothing_after_preempt(false));
}

#[test]
fn the_worker_is_woken_for_what_was_queued_between_preempt_and_restore() {
    model(|| {
        let parts = parts(true);
        let (engine, bell) = (Arc::clone(&parts.engine), Arc::clone(&parts.bell));
        let submitted = Arc::clone(&parts.submitted);
        // Were a ring lost, the worker would listen for ever, which loom reports.
        let worker = thread::spawn(move || {
            engine.pump();
            while submitted.load(Ordering::SeqCst) == 0 {
                bell.listen();
                engine.pump();
            }
        });
        let caller = parts.caller(1);
        parts.engine.preempt(&parts.queue, Request::default()).unwrap();
        parts.engine.restore(&parts.queue).unwrap();
        caller.join().unwrap();
        if parts.engine.waiting(&parts.queue) == 0 {
            // Passed by itself: nobody had to be woken.
            parts.bell.ring();
        }
        worker.join().unwrap();
        assert_eq!(parts.submitted(), 1);
    });
}

#[test]
fn commands_of_one_caller_stay_in_order_beside_a_worker() {
    model(|| {
        let parts = parts(true);
        parts.engine.preempt(&parts.queue, Request::default()).unwrap();
        let caller = parts.caller(2);
        let engine = Arc::clone(&parts.engine);
        let worker = thread::spawn(move || {
            let _ = engine.pump();
        });
        parts.engine.restore(&parts.queue).unwrap();
        worker.join().unwrap();
        caller.join().unwrap();
        parts.engine.pump();
        assert_eq!(parts.submitted(), 2);
    });
}
