//! Admission and the whole engine around it under loom: every interleaving of callers, a preempting thread and a
//! worker. A binary of its own, because it is built with `--cfg loom`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sluice-preempt --test loom_admission --release`
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
use sluice_preempt::worker::WakeSignal;

/// A driver that only runs the commands' closures.
#[derive(Debug)]
struct CallingDriver;

impl Driver for CallingDriver {
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
    fn exchange_capture_relaxed(&self, _: bool) -> bool {
        true
    }
}

/// A clock that stands still; a thread that pauses lets the others run.
#[derive(Debug)]
struct FrozenClock;

impl Clock for FrozenClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn pause(&self, _: u64) {
        thread::yield_now();
    }
}

#[derive(Debug, Clone)]
struct WakeObserver(Arc<WakeSignal>);

impl Observer for WakeObserver {
    fn wake(&self) {
        self.0.notify();
    }
}

type Model = Engine<CallingDriver, FrozenClock, WakeObserver>;

struct Fixture {
    engine: Arc<Model>,
    queue: Arc<Queue>,
    submitted: Arc<AtomicUsize>,
    wake_signal: Arc<WakeSignal>,
}

fn fixture() -> Fixture {
    let submitted = Arc::new(AtomicUsize::new(0));
    let wake_signal = Arc::new(WakeSignal::default());
    let engine = Arc::new(Engine::new(CallingDriver, FrozenClock, WakeObserver(Arc::clone(&wake_signal))));
    let queue = engine.queue(Stream { context: Context(1), handle: 5, blocking: false });
    engine.enable(&queue, Config::default()).unwrap();
    Fixture { engine, queue, submitted, wake_signal }
}

/// A command that asserts that exactly `number` commands reached the driver before it.
fn numbered(submitted: &Arc<AtomicUsize>, number: u64) -> Command {
    let submitted = Arc::clone(submitted);
    Command::Call(Call::new(Work::Small, 0, move |_| {
        assert_eq!(submitted.fetch_add(1, Ordering::SeqCst) as u64, number);
        Ok(())
    }))
}

impl Fixture {
    fn caller(&self, commands: u64) -> thread::JoinHandle<()> {
        let (engine, queue) = (Arc::clone(&self.engine), Arc::clone(&self.queue));
        let submitted = Arc::clone(&self.submitted);
        thread::spawn(move || {
            (0..commands).for_each(|n| engine.submit_command(&queue, &numbered(&submitted, n)).unwrap());
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

/// G1: nothing more is submitted between the return of `preempt` and `restore`.
#[test]
fn nothing_reaches_the_driver_after_preempt_has_returned() {
    model(|| {
        let fixture = fixture();
        let caller = fixture.caller(2);
        fixture.engine.preempt(&fixture.queue, Request::default()).unwrap();
        let at_return = fixture.submitted();
        thread::yield_now();
        assert_eq!(fixture.submitted(), at_return);
        caller.join().unwrap();
        assert_eq!(fixture.submitted(), at_return);
        fixture.engine.restore(&fixture.queue).unwrap();
        fixture.engine.dispatch();
        assert_eq!(fixture.submitted(), 2);
    });
}

#[test]
fn worker_is_woken_for_commands_queued_between_preempt_and_restore() {
    model(|| {
        let fixture = fixture();
        let (engine, wake_signal) = (Arc::clone(&fixture.engine), Arc::clone(&fixture.wake_signal));
        let submitted = Arc::clone(&fixture.submitted);
        // If a notification were lost, the worker would wait without end, which loom reports.
        let worker = thread::spawn(move || {
            engine.dispatch();
            while submitted.load(Ordering::SeqCst) == 0 {
                wake_signal.wait_for(None);
                engine.dispatch();
            }
        });
        let caller = fixture.caller(1);
        fixture.engine.preempt(&fixture.queue, Request::default()).unwrap();
        fixture.engine.restore(&fixture.queue).unwrap();
        caller.join().unwrap();
        if fixture.engine.pending_commands(&fixture.queue) == 0 {
            // The command passed directly, so nothing had to wake the worker.
            fixture.wake_signal.notify();
        }
        worker.join().unwrap();
        assert_eq!(fixture.submitted(), 1);
    });
}

#[test]
fn commands_of_one_caller_stay_in_order_beside_a_worker() {
    model(|| {
        let fixture = fixture();
        fixture.engine.preempt(&fixture.queue, Request::default()).unwrap();
        let caller = fixture.caller(2);
        let engine = Arc::clone(&fixture.engine);
        let worker = thread::spawn(move || {
            let _ = engine.dispatch();
        });
        fixture.engine.restore(&fixture.queue).unwrap();
        worker.join().unwrap();
        caller.join().unwrap();
        fixture.engine.dispatch();
        assert_eq!(fixture.submitted(), 2);
    });
}
