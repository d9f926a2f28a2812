//! The queue of each stream handle.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::platform::{Stream as NamedStream, StreamKind};
use sluice_preempt::ids::{Context, Stream};
use sluice_preempt::queue::Queue;

use super::engine::{HookEngine, engine};
use super::own_calls::{as_own_call, follow};
use crate::gpu::{self, pointer};
use crate::real;
use crate::thread_state::with_thread;

pub(super) const PER_THREAD: u64 = 2;

/// The legacy default stream's key among the default streams, in place of a thread's number.
const NO_THREAD: u32 = 0;

static MAPS: RwLock<Maps> =
    RwLock::new(Maps { created: BTreeMap::new(), ending: BTreeMap::new(), defaults: BTreeMap::new() });

struct Maps {
    created: BTreeMap<u64, Arc<Queue>>,
    /// Destroyed streams with pending commands. Until those are submitted, the driver cannot reuse the handle.
    ending: BTreeMap<u64, Arc<Queue>>,
    /// Default streams, by context and thread.
    defaults: BTreeMap<(u64, u32), Arc<Queue>>,
}

/// What `stream` names in an entry point whose default stream is the calling thread's own (`_ptsz`), or not.
///
/// The number of the calling thread is left out: [`thread_of`] reads it only where a default stream is looked up.
pub(super) fn named(stream: CUstream, per_thread: bool) -> NamedStream {
    NamedStream::new(stream.expose_provenance() as u64, per_thread, 0)
}

/// The queue of a stream, created if it does not exist. `None` without a context, or if the driver does not know the
/// handle.
pub(super) fn find(engine: &HookEngine, stream: CUstream, per_thread: bool) -> Option<Arc<Queue>> {
    let named = named(stream, per_thread);
    known(named).or_else(|| make(engine, named))
}

pub(super) fn known(named: NamedStream) -> Option<Arc<Queue>> {
    match named.kind {
        StreamKind::Created => read(|maps| {
            let ending = || maps.ending.get(&named.handle).filter(|queue| is_current(queue));
            maps.created.get(&named.handle).or_else(ending).cloned()
        }),
        StreamKind::Legacy | StreamKind::PerThread => {
            let key = (gpu::current_context()?, thread_of(named.kind));
            read(|maps| maps.defaults.get(&key).cloned())
        }
    }
}

pub(super) fn of_context(context: u64) -> Vec<Arc<Queue>> {
    read(|maps| {
        let all = maps.created.values().chain(maps.defaults.values());
        all.filter(|queue| queue.stream().context.0 == context).cloned().collect()
    })
}

/// Destroyed streams with pending commands.
pub(super) fn ended() -> Vec<Arc<Queue>> {
    read(|maps| maps.ending.values().filter(|queue| is_current(queue)).cloned().collect())
}

/// A created stream is being destroyed: the handle refers to it only while commands are pending.
pub(super) fn end(handle: u64) -> Option<Arc<Queue>> {
    write(|maps| {
        maps.ending.retain(|_, queue| is_current(queue));
        let queue = maps.created.remove(&handle)?;
        maps.ending.insert(handle, Arc::clone(&queue));
        Some(queue)
    })
}

/// Whether the handle still refers to the queue.
fn is_current(queue: &Queue) -> bool {
    engine().is_some_and(|engine| engine.is_handle_current(queue))
}

/// A context has ended, or is about to.
pub(super) fn forget_context(context: u64) {
    write(|maps| {
        maps.created.retain(|_, queue| queue.stream().context.0 != context);
        maps.ending.retain(|_, queue| queue.stream().context.0 != context);
        maps.defaults.retain(|(of, _), _| *of != context);
    });
}

fn thread_of(kind: StreamKind) -> u32 {
    if kind == StreamKind::PerThread { with_thread(|thread| thread.id()) } else { NO_THREAD }
}

#[cold]
fn make(engine: &HookEngine, named: NamedStream) -> Option<Arc<Queue>> {
    let stream = match named.kind {
        StreamKind::Created => Stream {
            context: Context(context_of(named.handle)?),
            handle: named.handle,
            // Assumed if the driver does not report it.
            blocking: as_own_call(|| gpu::is_blocking(pointer(named.handle))).unwrap_or(true),
        },
        StreamKind::Legacy => Stream::legacy(Context(gpu::current_context()?)),
        StreamKind::PerThread => {
            let context = Context(gpu::current_context()?);
            Stream { context, handle: as_own_call(stand_in)?, blocking: true }
        }
    };
    let queue = engine.queue(stream);
    write(|maps| match named.kind {
        StreamKind::Created => maps.created.insert(named.handle, Arc::clone(&queue)),
        StreamKind::Legacy | StreamKind::PerThread => {
            maps.defaults.insert((stream.context.0, thread_of(named.kind)), Arc::clone(&queue))
        }
    });
    Some(queue)
}

fn context_of(handle: u64) -> Option<u64> {
    match as_own_call(|| gpu::stream_context(pointer(handle))) {
        Ok(context) => context,
        // A stream of a green context.
        Err(CUresult::ERROR_INVALID_CONTEXT | CUresult::ERROR_NOT_SUPPORTED) => gpu::current_context(),
        Err(_) => None,
    }
}

/// A stream in place of the calling thread's own default stream, which no other thread can name. It is ordered behind
/// all work of that stream.
fn stand_in() -> Option<u64> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: `stream` is writable.
    let made = unsafe { real::table().cuStreamCreate?(&raw mut stream, CU_STREAM_DEFAULT) };
    if made != CUresult::SUCCESS {
        return None;
    }
    if follow(stream, pointer(PER_THREAD)).is_err() {
        // SAFETY: the stream was made above, and nothing uses it.
        let _destroyed = unsafe { real::table().cuStreamDestroy_v2?(stream) };
        return None;
    }
    Some(stream.expose_provenance() as u64)
}

fn read<R>(call: impl FnOnce(&Maps) -> R) -> R {
    call(&MAPS.read().unwrap_or_else(PoisonError::into_inner))
}

fn write<R>(call: impl FnOnce(&mut Maps) -> R) -> R {
    call(&mut MAPS.write().unwrap_or_else(PoisonError::into_inner))
}
