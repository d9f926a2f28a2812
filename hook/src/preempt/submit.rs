//! Calls that submit work: at once, later by the worker, or later by the calling thread.

use std::sync::Arc;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::platform::StreamKind;
use sluice_preempt::command::{Call, Command, Deferral, Work};
use sluice_preempt::ids::{Code, Stream};
use sluice_preempt::queue::Queue;

use super::engine::{HookEngine, engine_for_call, is_engaged};
use super::own_calls::{as_own_call, code, follow, status};
use super::{loads, own_groups, streams};
use crate::gpu::pointer;
use crate::guard::guarded;

/// Makes a call of the program through the engine; directly while no call goes through it, or if the driver is calling.
#[inline]
pub(crate) fn through_engine(
    direct: impl FnOnce() -> CUresult,
    call: impl FnOnce(&HookEngine) -> Result<(), Code>,
) -> CUresult {
    if !is_engaged() {
        return direct();
    }
    match engine_for_call() {
        Some(engine) => guarded(CUresult::ERROR_UNKNOWN, || status(call(engine))),
        None => direct(),
    }
}

/// As [`through_engine`], with the queue of `stream`; directly also if the stream has no queue.
#[inline]
pub(crate) fn on_queue(
    (stream, per_thread): (CUstream, bool),
    direct: impl FnOnce() -> CUresult,
    call: impl FnOnce(&HookEngine, &Arc<Queue>) -> Result<(), Code>,
) -> CUresult {
    if !is_engaged() {
        return direct();
    }
    match queue_of(stream, per_thread) {
        Some((engine, queue)) => guarded(CUresult::ERROR_UNKNOWN, || status(call(engine, &queue))),
        None => direct(),
    }
}

/// Runs `call` with the engine if calls go through it and the driver itself is not calling.
#[inline]
pub(super) fn notify_engine(call: impl FnOnce(&HookEngine)) {
    if is_engaged()
        && let Some(engine) = engine_for_call()
    {
        guarded((), || call(engine));
    }
}

/// A call on `stream`: `direct` while nothing can be preempted. Otherwise `now` on the stream that the engine knows,
/// or what `later` defers.
#[inline]
pub(crate) fn submit(
    stream: (CUstream, bool),
    work: impl FnOnce() -> Work,
    direct: impl FnOnce() -> CUresult,
    now: impl FnOnce(CUstream) -> CUresult,
    later: impl FnOnce() -> Result<Deferral, Code>,
) -> CUresult {
    on_queue(stream, direct, |engine, queue| {
        through(engine, queue, work(), || now(pointer(queue.stream().handle)), later)
    })
}

/// A command whose arguments are plain values; `kept` makes the same call later, and `graph` is the graph that it uses.
#[inline]
pub(crate) fn submit_by_value(
    stream: (Option<CUstream>, bool),
    work: impl Fn() -> Work,
    direct: impl FnOnce() -> CUresult,
    now: impl FnOnce(CUstream) -> CUresult,
    graph: impl FnOnce() -> Option<CUgraphExec>,
    kept: impl FnOnce() -> Kept,
) -> CUresult {
    let stream = (stream.0.unwrap_or(std::ptr::null_mut()), stream.1);
    let later = || {
        let graph = graph().map(|graph| graph.expose_provenance() as u64);
        Ok(Deferral::Queue(Command::Call(kept_call(work(), 0, kept()).with_graph(graph))))
    };
    submit(stream, &work, direct, now, later)
}

/// A command that only the calling thread can make. Without a stream argument it runs on the default stream.
#[inline]
pub(crate) fn submit_by_caller(
    (stream, per_thread): (Option<CUstream>, bool),
    work: impl FnOnce() -> Work,
    direct: impl FnOnce() -> CUresult,
    now: impl FnOnce(CUstream) -> CUresult,
) -> CUresult {
    let named = stream.unwrap_or(std::ptr::null_mut());
    on_queue((named, per_thread), direct, |engine, queue| {
        let own = stream.is_none() && streams::named(named, per_thread).kind == StreamKind::PerThread;
        let now = || {
            let on = pointer(queue.stream().handle);
            if own { beside(queue.stream(), || now(on)) } else { now(on) }
        };
        through(engine, queue, work(), now, || Ok(Deferral::ByCaller))
    })
}

#[inline]
pub(crate) fn query_on_stream(
    (stream, per_thread): (CUstream, bool),
    now: impl FnOnce(CUstream) -> CUresult,
) -> CUresult {
    now(stands_for(stream, per_thread))
}

/// The stream itself, or the stand-in of the calling thread's own default stream.
#[inline]
pub(crate) fn stands_for(stream: CUstream, per_thread: bool) -> CUstream {
    if !is_engaged() || streams::named(stream, per_thread).kind != StreamKind::PerThread {
        return stream;
    }
    queue_of(stream, per_thread).map_or(stream, |(_, queue)| pointer(queue.stream().handle))
}

/// The stand-in of the calling thread's own default stream in the current context, if it has one.
pub(crate) fn own_stand_in() -> Option<CUstream> {
    if !is_engaged() {
        return None;
    }
    let own = streams::named(pointer(streams::PER_THREAD), true);
    streams::known(own).map(|queue| pointer(queue.stream().handle))
}

/// A change of an executable graph: pending commands still use the graph as it was.
#[inline]
pub(crate) fn update_graph(graph: CUgraphExec, real: impl FnOnce() -> CUresult) -> CUresult {
    notify_engine(|engine| engine.await_graph(graph.expose_provenance() as u64));
    real()
}

/// The destruction of an executable graph, after the pending commands that use it.
#[inline]
pub(crate) fn destroy_graph(graph: CUgraphExec, real: impl FnOnce() -> CUresult) -> CUresult {
    through_engine(real, |engine| engine.destroy_graph(graph.expose_provenance() as u64))
}

/// A call kept for later; its argument is the stream.
pub(crate) type Kept = Box<dyn Fn(CUstream) -> CUresult + Send + Sync>;

/// A kept call as a command that owns `bytes` bytes.
pub(super) fn call(work: Work, bytes: usize, kept: Kept) -> Deferral {
    Deferral::Queue(Command::Call(kept_call(work, bytes, kept)))
}

fn kept_call(work: Work, bytes: usize, kept: Kept) -> Call {
    Call::new(work, bytes, move |stream| code(kept(pointer(stream))))
}

/// The engine and the queue of a stream, for a call of the program.
fn queue_of(stream: CUstream, per_thread: bool) -> Option<(&'static HookEngine, Arc<Queue>)> {
    let found = guarded(None, || {
        let engine = engine_for_call()?;
        Some((engine, streams::find(engine, stream, per_thread)?))
    })?;
    own_groups::yield_group(Some(&found.1));
    Some(found)
}

fn through(
    engine: &HookEngine,
    queue: &Queue,
    work: Work,
    now: impl FnOnce() -> CUresult,
    later: impl FnOnce() -> Result<Deferral, Code>,
) -> Result<(), Code> {
    let now = || {
        let first = loads::before_launch(queue.stream(), work);
        let result = as_own_call(now);
        loads::launched(first, result);
        code(result)
    };
    engine.submit(queue, work, now, later)
}

/// Makes a call that the driver runs on the thread's own default stream, ordered as if it ran on the stand-in.
fn beside(stand_in: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    let (stand_in, own) = (pointer(stand_in.handle), pointer(streams::PER_THREAD));
    status(follow(own, stand_in).and_then(|()| code(call()).and(follow(stand_in, own))))
}
