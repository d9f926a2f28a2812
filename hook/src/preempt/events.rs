//! Calls on events. The engine knows what an event refers to, because a record may still be pending.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_preempt::command::{Deferral, Work};
use sluice_preempt::ids::Event;

use super::engine::{HookEngine, engine, is_engaged};
use super::submit::{notify_engine, on_queue, submit, through_engine};
use super::waits::flush_context_before;
use crate::guard::{guarded, written};

/// Events that other processes may know, from before the engine exists: the engine must never replace them by pooled
/// ones.
static SHARED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static SHARED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The event as the engine names it.
#[inline]
pub(crate) fn number(event: CUevent) -> Event {
    Event(event.expose_provenance() as u64)
}

/// `cuEventCreate`.
#[inline]
pub(crate) fn create(event: *mut CUevent, flags: c_uint, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS && (flags & CU_EVENT_INTERPROCESS != 0 || is_engaged()) {
        // SAFETY: null or written: the driver has succeeded.
        let event = unsafe { written(event) };
        guarded((), || {
            event.into_iter().for_each(|event| made(event, flags, flags & CU_EVENT_INTERPROCESS != 0))
        });
    }
    result
}

/// `cuIpcOpenEventHandle`: an event of another process.
pub(crate) fn open_ipc(event: *mut CUevent, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS {
        // SAFETY: null or written: the driver has succeeded.
        let event = unsafe { written(event) };
        let flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
        guarded((), || event.into_iter().for_each(|event| made(event, flags, true)));
    }
    result
}

fn made(event: CUevent, flags: c_uint, shared: bool) {
    let event = number(event);
    if shared {
        change_shared(|known| known.push(event.0));
    }
    if let Some(engine) = engine() {
        engine.event_created(event, flags, shared);
    }
}

fn change_shared(change: impl FnOnce(&mut Vec<u64>)) {
    let mut known = lock(&SHARED);
    change(&mut known);
    SHARED_COUNT.store(known.len(), Release);
}

/// Registers the events that other processes know with a new engine.
pub(super) fn introduce(engine: &HookEngine) {
    let known = lock(&SHARED).clone();
    known.into_iter().for_each(|event| engine.event_created(Event(event), CU_EVENT_DISABLE_TIMING, true));
}

/// `cuEventDestroy`.
#[inline]
pub(crate) fn destroy(event: CUevent, direct: impl FnOnce() -> CUresult) -> CUresult {
    if SHARED_COUNT.load(Relaxed) > 0 {
        guarded((), || change_shared(|known| known.retain(|shared| *shared != number(event).0)));
    }
    through_engine(direct, |engine| engine.destroy_event(number(event)))
}

/// `cuEventElapsedTime`.
#[inline]
pub(crate) fn elapsed(
    ms: *mut f32,
    (from, to): (CUevent, CUevent),
    direct: impl FnOnce() -> CUresult,
) -> CUresult {
    if ms.is_null() {
        return direct();
    }
    through_engine(direct, |engine| {
        let ns = engine.elapsed_ns(number(from), number(to))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "the driver's own precision"
        )]
        let elapsed = (ns as f64 / 1e6) as f32;
        // SAFETY: not null, so by the driver's contract it is writable.
        unsafe { *ms = elapsed };
        Ok(())
    })
}

/// `cuEventRecord`, with the flags of a record that has any.
#[inline]
pub(crate) fn record(
    event: CUevent,
    stream: (CUstream, bool),
    flags: c_uint,
    direct: impl FnOnce() -> CUresult,
    now: impl FnOnce(CUstream) -> CUresult,
) -> CUresult {
    if flags != 0 && is_engaged() {
        // Only captures know records with flags.
        let result = submit(stream, || Work::Small, direct, now, || Ok(Deferral::ByCaller));
        elsewhere(event);
        return result;
    }
    on_queue(stream, direct, |engine, queue| engine.record(queue, number(event)))
}

/// A record of a whole context, behind all work of its streams.
#[inline]
pub(crate) fn record_context(event: CUevent, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = flush_context_before(real);
    elsewhere(event);
    result
}

/// The event was recorded in a way that the engine does not follow: only the driver knows what it refers to.
fn elsewhere(event: CUevent) {
    notify_engine(|engine| engine.recorded_elsewhere(number(event)));
}
