//! The ends of streams and contexts under loom: every interleaving of the thread that ends them with two threads that
//! dispatch. A binary of its own, because it is built with `--cfg loom`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sluice-preempt --test loom_lifetime --release`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use sluice_preempt::command::{Call, Command, Work};
use sluice_preempt::config::Config;
use sluice_preempt::driver::{Clock, Driver, EventFlags, Observer};
use sluice_preempt::engine::{Engine, Request};
use sluice_preempt::ids::{Code, Context, Event, Stream};
use sluice_preempt::queue::Queue;

/// A driver that panics if a call uses a destroyed stream or context. Each call checks twice, because a real one
/// takes time.
#[derive(Debug, Default)]
struct StrictDriver {
    stream_gone: AtomicBool,
    context_gone: AtomicBool,
    submitted: AtomicUsize,
    captures: AtomicBool,
}

impl StrictDriver {
    fn uses_context(&self) {
        assert!(!self.context_gone.load(Ordering::SeqCst), "the context is gone");
    }

    fn uses_stream(&self) {
        for _ in 0..2 {
            self.uses_context();
            assert!(!self.stream_gone.load(Ordering::SeqCst), "the stream is gone");
        }
    }
}

#[derive(Debug, Clone, Default)]
struct SharedDriver(Arc<StrictDriver>);

impl Driver for SharedDriver {
    fn submit(&self, _: Stream, _: &Command) -> Result<(), Code> {
        self.0.uses_stream();
        self.0.submitted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn record(&self, _: Stream, _: Event) -> Result<(), Code> {
        self.0.uses_stream();
        Ok(())
    }
    fn wait(&self, _: Stream, _: Event) -> Result<(), Code> {
        self.0.uses_stream();
        Ok(())
    }
    fn create_event(&self, _: Context, _: EventFlags) -> Result<Event, Code> {
        self.0.uses_context();
        Ok(Event(1))
    }
    fn destroy_event(&self, _: Event) -> Result<(), Code> {
        self.0.uses_context();
        Ok(())
    }
    fn query_event(&self, _: Event) -> Result<(), Code> {
        self.0.uses_stream();
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
        self.0.uses_stream();
        self.0.stream_gone.store(true, Ordering::SeqCst);
        Ok(())
    }
    fn destroy_graph(&self, _: u64) -> Result<(), Code> {
        Ok(())
    }
    fn is_capturing(&self, _: Stream) -> bool {
        self.0.uses_stream();
        self.0.captures.load(Ordering::SeqCst)
    }
    fn exchange_capture_relaxed(&self, _: bool) -> bool {
        true
    }
}

/// A clock that stands still. Only every second pause lets the other threads run to their end, so that the pausing
/// thread also goes on in their middle.
#[derive(Debug, Default)]
struct FrozenClock(std::sync::atomic::AtomicU32);

impl Clock for FrozenClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn pause(&self, _: u64) {
        if self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            thread::yield_now();
        }
    }
}

#[derive(Debug)]
struct SilentObserver;

impl Observer for SilentObserver {}

type Model = Engine<SharedDriver, FrozenClock, SilentObserver>;

/// An engine with one preempted stream that has a pending command and was captured before.
fn fixture() -> (Arc<Model>, Arc<Queue>, SharedDriver) {
    let driver = SharedDriver::default();
    let engine = Arc::new(Engine::new(driver.clone(), FrozenClock::default(), SilentObserver));
    let queue = engine.queue(Stream { context: Context(1), handle: 5, blocking: false });
    engine.enable(&queue, Config::default()).unwrap();
    engine.preempt(&queue, Request::default()).unwrap();
    engine.submit_command(&queue, &Command::Call(Call::new(Work::Small, 0, |_| Ok(())))).unwrap();
    engine.begin_capture(&queue, || Ok(())).unwrap();
    engine.restore(&queue).unwrap();
    (engine, queue, driver)
}

fn spawn_dispatch(engine: &Arc<Model>) -> thread::JoinHandle<()> {
    let engine = Arc::clone(engine);
    thread::spawn(move || {
        let _ = engine.dispatch();
    })
}

fn model(test: fn()) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn destroyed_stream_is_not_used_by_dispatching_threads() {
    model(|| {
        let (engine, queue, driver) = fixture();
        let worker = spawn_dispatch(&engine);
        engine.destroy_stream(&queue).unwrap();
        engine.dispatch();
        worker.join().unwrap();
        engine.dispatch();
        assert_eq!(driver.0.submitted.load(Ordering::SeqCst), 1);
        assert!(driver.0.stream_gone.load(Ordering::SeqCst) && engine.queue_count() == 0);
    });
}

#[test]
fn ended_context_is_not_used_by_dispatching_threads() {
    model(|| {
        let (engine, _, driver) = fixture();
        let worker = spawn_dispatch(&engine);
        engine.begin_context_end(Context(1));
        assert_eq!(driver.0.submitted.load(Ordering::SeqCst), 1);
        driver.0.context_gone.store(true, Ordering::SeqCst);
        engine.finish_context_end(Context(1));
        worker.join().unwrap();
        engine.dispatch();
        assert_eq!(engine.queue_count(), 0);
    });
}
