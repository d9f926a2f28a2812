//! An engine over a fake GPU, with the helpers that every test needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use sluice_preempt::command::{Call, Command, Work};
use sluice_preempt::config::{Config, PreemptionLevel};
use sluice_preempt::driver::{Driver, Observer};
use sluice_preempt::engine::{Engine, NextDispatch, Request};
use sluice_preempt::ids::{Code, Context, Event};
use sluice_preempt::outcome::{Achieved, Error, Notice};
use sluice_preempt::queue::Queue;
use sluice_preempt::worker::{self, WakeSignal};

use crate::fake_gpu::{Effect, FakeGpu, Interruption, Job, job};

#[derive(Debug, Clone, Default)]
pub(crate) struct RecordingObserver {
    notices: Arc<Mutex<Vec<Notice>>>,
    /// What the program does at the next notice.
    pub(crate) then: Arc<Mutex<Interruption>>,
    pub(crate) wake_signal: Arc<WakeSignal>,
}

impl Observer for RecordingObserver {
    fn notice(&self, notice: Notice) {
        self.notices.lock().unwrap().push(notice);
        let then = self.then.lock().unwrap().0.take();
        then.into_iter().for_each(|then| then());
    }

    fn wake(&self) {
        self.wake_signal.notify();
    }
}

impl RecordingObserver {
    pub(crate) fn all(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }
}

pub(crate) type Fake = Engine<FakeGpu, FakeGpu, RecordingObserver>;

/// See the module.
#[derive(Clone)]
pub(crate) struct TestRig {
    pub(crate) gpu: FakeGpu,
    pub(crate) engine: Arc<Fake>,
    pub(crate) observer: RecordingObserver,
}

/// Whether the legacy default stream orders itself with a stream.
pub(crate) const BLOCKING: bool = true;
pub(crate) const NON_BLOCKING: bool = false;

/// Preemption that waits until the stream has stopped.
pub(crate) const SYNC: Request = Request { level: None, sync: true, timeout_ns: 1_000_000_000 };

/// Preemption that returns at once.
pub(crate) const ASYNC: Request = Request { sync: false, ..SYNC };

pub(crate) fn config(level: PreemptionLevel) -> Config {
    Config { level, ..Config::default() }
}

/// A worker and the GPU's time, running until this is dropped.
pub(crate) struct RunningWorker {
    rig: TestRig,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.rig.observer.wake_signal.end();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl TestRig {
    pub(crate) fn start_worker(&self) -> RunningWorker {
        let over = Arc::new(AtomicBool::new(false));
        let (rig, time, ended) = (self.clone(), self.gpu.clone(), Arc::clone(&over));
        let threads = vec![
            thread::spawn(move || worker::run(&rig.engine, &rig.observer.wake_signal)),
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    time.advance(10_000);
                    thread::yield_now();
                }
            }),
        ];
        RunningWorker { rig: self.clone(), over, threads }
    }

    pub(crate) fn new() -> Self {
        let (gpu, observer) = (FakeGpu::new(), RecordingObserver::default());
        let engine = Arc::new(Engine::new(gpu.clone(), gpu.clone(), observer.clone()));
        Self { gpu, engine, observer }
    }

    /// A stream with preemption enabled.
    pub(crate) fn queue(&self, blocking: bool, level: PreemptionLevel) -> Arc<Queue> {
        let queue = self.stream(1, blocking);
        self.engine.enable(&queue, config(level)).unwrap();
        queue
    }

    /// The legacy default stream with preemption enabled.
    pub(crate) fn legacy_queue(&self, level: PreemptionLevel) -> Arc<Queue> {
        let queue = self.legacy_stream();
        self.engine.enable(&queue, config(level)).unwrap();
        queue
    }

    /// A stream without preemption.
    pub(crate) fn stream(&self, context: u64, blocking: bool) -> Arc<Queue> {
        self.engine.queue(self.gpu.stream(context, blocking))
    }

    /// The legacy default stream without preemption.
    pub(crate) fn legacy_stream(&self) -> Arc<Queue> {
        self.engine.queue(self.gpu.legacy_stream())
    }

    pub(crate) fn event(&self) -> Event {
        let event = self.gpu.create_event(Context(1), 0).unwrap();
        self.engine.event_created(event, 0, false);
        event
    }

    /// The program ends a context.
    pub(crate) fn end_context(&self, context: u64) {
        self.engine.begin_context_end(Context(context));
        self.gpu.end_context(context);
        self.engine.finish_context_end(Context(context));
        self.gpu.make_context(context);
    }

    pub(crate) fn launch(&self, queue: &Queue, effect: Effect, ns: u64, tag: u64) -> Result<(), Code> {
        match effect {
            Effect::Host(data) => self.command(queue, &self.call(Job { effect, ns, tag: data })),
            _ => self.command(queue, &job(effect, ns, tag)),
        }
    }

    /// A call that the hook keeps as a closure; on the GPU it runs `job`.
    pub(crate) fn call(&self, job: Job) -> Command {
        let gpu = self.gpu.clone();
        Command::Call(Call::new(Work::Small, 0, move |handle| {
            gpu.state().enqueue(handle, vec![job]);
            Ok(())
        }))
    }

    /// Launches a kernel of 1 µs that only leaves its tag.
    pub(crate) fn launch_tagged(&self, queue: &Queue, tag: u64) {
        self.launch(queue, Effect::Nothing, 1000, tag).unwrap();
    }

    pub(crate) fn command(&self, queue: &Queue, command: &Command) -> Result<(), Code> {
        self.engine.submit_command(queue, command)
    }

    pub(crate) fn preempt(&self, queue: &Queue, request: Request) -> Result<Achieved, Error> {
        self.engine.preempt(queue, request)
    }

    pub(crate) fn restore(&self, queue: &Queue) {
        self.engine.restore(queue).unwrap();
    }

    /// Dispatches and advances the time until everything that may go has run.
    pub(crate) fn run_to_completion(&self) {
        for _ in 0..100_000 {
            match self.engine.dispatch() {
                NextDispatch::WhenWoken => break,
                NextDispatch::At(at) => {
                    self.gpu.advance(at.saturating_sub(self.gpu.now()).clamp(1, 1_000_000))
                }
            }
        }
        self.gpu.finish();
    }

    pub(crate) fn executed(&self, queue: &Queue) -> Vec<u64> {
        self.gpu.executed(queue.stream())
    }

    pub(crate) fn submitted(&self, queue: &Queue) -> usize {
        self.gpu.submitted(queue.stream())
    }
}
