//! Streams, the stream that a handle means, and events.

use super::capture::Position;
use super::context::{Context, current};
use super::driver::driver;
use super::{lock, status_of};
use crate::border::{Ptr, Status};
use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream_st;
use sluice_sim::client::{self, Mark, StreamCommand};
use sluice_sim::engine::{StreamKind, Work};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The effect of a command on memory; a graph's effects run at each launch.
pub(crate) type Effect = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    pub(crate) sim: client::Stream,
    pub(crate) kind: StreamKind,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Locked while a host function is put into the stream.
    pub(super) host_order: Mutex<()>,
    /// The capture that the stream takes part in.
    pub(crate) capture: Mutex<Option<Position>>,
}

/// The default stream that the null handle means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Null {
    /// The context's legacy default stream.
    Legacy,
    /// The thread's own default stream.
    PerThread,
}

impl Stream {
    pub(crate) fn open(
        context: &Arc<Context>,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> Result<Arc<Self>, CUresult> {
        context.check()?;
        let sim =
            client::Stream::open(&context.device.gpu, context.group, kind, priority).map_err(status_of)?;
        let stream = driver()?.streams.add(|handle| Self {
            handle,
            context: context.clone(),
            sim,
            kind,
            flags,
            priority,
            host_order: Mutex::new(()),
            capture: Mutex::new(None),
        });
        context.add_stream(&stream);
        Ok(stream)
    }

    /// Puts work into the stream, or into the graph that it is captured to.
    pub(crate) fn work(&self, work: Work, effect: Option<Effect>) -> Status {
        if self.is_captured(|position| position.add(self, work, effect.clone()))? {
            return Ok(());
        }
        self.submit(
            StreamCommand::Work(work),
            effect.map(|effect| Box::new(move || effect()) as client::Effect),
        )?;
        Ok(())
    }

    /// Puts a command into the stream, even if the stream is captured.
    pub(crate) fn submit(
        &self,
        command: StreamCommand,
        effect: Option<client::Effect>,
    ) -> Result<Mark, CUresult> {
        self.context.check()?;
        self.context.healthy()?;
        self.sim.submit(command, effect).map_err(status_of)
    }

    /// Applies `work` to the stream's position in its capture. Returns `false` if the stream is not captured.
    pub(crate) fn is_captured(&self, work: impl FnOnce(&mut Position) -> Status) -> Result<bool, CUresult> {
        if !driver()?.captures.any() {
            return Ok(false);
        }
        if self.kind == StreamKind::Legacy {
            driver()?.captures.forbid_legacy(&self.context)?;
        }
        match lock(&self.capture).as_mut() {
            Some(position) => work(position).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether the stream takes part in a capture.
    pub(crate) fn is_being_captured(&self) -> bool {
        driver().is_ok_and(|driver| driver.captures.any()) && lock(&self.capture).is_some()
    }

    pub(crate) fn synchronize(&self) -> Status {
        self.context.check()?;
        self.context.device.wait_for(self.sim.mark())?;
        self.context.healthy()
    }

    pub(crate) fn query(&self) -> Status {
        self.context.check()?;
        if !self.context.device.gpu.is_done(self.sim.mark()) {
            return Err(CUresult::ERROR_NOT_READY);
        }
        self.context.healthy()
    }
}

/// The default streams of one thread, by context. They end with the thread.
struct ThreadStreams(HashMap<usize, Arc<Stream>>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            for (_, stream) in self.0.drain() {
                driver.streams.remove(stream.handle);
                stream.context.remove_stream(&stream);
            }
        }
    }
}

thread_local! {
    static THREAD_STREAMS: RefCell<ThreadStreams> = RefCell::new(ThreadStreams(HashMap::new()));
}

fn per_thread() -> Result<Arc<Stream>, CUresult> {
    let context = current()?;
    let known = THREAD_STREAMS.try_with(|streams| streams.borrow().0.get(&context.handle).cloned());
    match known {
        Ok(Some(stream)) => Ok(stream),
        // A thread that is ending has no streams any more.
        Err(_) => context.legacy(),
        Ok(None) => {
            let stream = Stream::open(&context, StreamKind::Blocking, 0, 0)?;
            let kept = stream.clone();
            let _ = THREAD_STREAMS.try_with(|streams| streams.borrow_mut().0.insert(context.handle, kept));
            Ok(stream)
        }
    }
}

pub(crate) fn stream(handle: Ptr<CUstream_st>, null: Null) -> Result<Arc<Stream>, CUresult> {
    let driver = driver()?;
    match (handle.address(), null) {
        (0, Null::Legacy) | (1, _) => current()?.legacy(),
        (0, Null::PerThread) | (2, _) => per_thread(),
        (handle, _) => {
            let stream = driver.streams.get(handle).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
            stream.context.check()?;
            Ok(stream)
        }
    }
}

/// The last position that an event has recorded.
#[derive(Clone)]
pub(crate) enum Recorded {
    /// No position yet.
    Never,
    /// A position in a stream of this context.
    At { context: Arc<Context>, mark: Mark },
    /// A position in a capture.
    Captured(Position),
}

pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    /// The word that receives the time; `None` for an event without timing.
    pub(crate) word: Option<usize>,
    pub(crate) recorded: Mutex<Recorded>,
}

impl Event {
    pub(crate) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }

    /// The time at which it was reached; NOT_READY before that, INVALID_HANDLE for an event without a time.
    pub(crate) fn time(&self) -> Result<u64, CUresult> {
        let word = self.word.ok_or(CUresult::ERROR_INVALID_HANDLE)?;
        match self.recorded() {
            Recorded::Never => Err(CUresult::ERROR_INVALID_HANDLE),
            Recorded::Captured(_) => Err(CUresult::ERROR_CAPTURED_EVENT),
            Recorded::At { context, mark } if context.device.gpu.is_done(mark) => {
                Ok(context.device.gpu.event_time(word))
            }
            Recorded::At { .. } => Err(CUresult::ERROR_NOT_READY),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            self.context.device.gpu.close_event(word);
        }
    }
}
