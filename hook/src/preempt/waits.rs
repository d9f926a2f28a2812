//! Calls that wait for the GPU, query it, capture, or end an object.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::ids::Context;

use super::engine::{engine_for_call, is_engaged};
use super::own_calls::{as_own_call, code, status};
use super::submit::{notify_engine, on_queue};
use super::{loads, own_groups, parameters, preempted_streams, streams};
use crate::gpu::{self, pointer};
use crate::guard::guarded;

/// `cuCtxSynchronize` of the current context, or of the given one.
#[inline]
pub(crate) fn synchronize_context(context: Option<CUcontext>, real: impl FnOnce() -> CUresult) -> CUresult {
    if !is_engaged() {
        return real();
    }
    let Some(engine) = engine_for_call() else { return real() };
    own_groups::yield_group(None);
    let given =
        context.filter(|context| !context.is_null()).map(|context| context.expose_provenance() as u64);
    let told = guarded(Ok(()), || match given.or_else(gpu::current_context) {
        Some(context) => engine.flush_context(Context(context)),
        None => Ok(()),
    });
    let result = real();
    if result == CUresult::SUCCESS { status(told) } else { result }
}

/// A call that may wait for the current context, or that ends an object which pending commands may use.
#[inline]
pub(crate) fn flush_context_before(real: impl FnOnce() -> CUresult) -> CUresult {
    own_groups::yield_group(None);
    notify_engine(|engine| {
        if let Some(context) = gpu::current_context() {
            engine.flush_context_ignoring_errors(Context(context));
        }
        parameters::forget_layouts();
    });
    real()
}

/// The end of a module or a library: the driver may reuse the handles of its functions.
#[inline]
pub(crate) fn unload(real: impl FnOnce() -> CUresult) -> CUresult {
    if is_engaged() {
        guarded((), || loads::forget_functions(None));
    }
    flush_context_before(real)
}

#[inline]
pub(crate) fn capture(
    begins: bool,
    stream: (CUstream, bool),
    direct: impl FnOnce() -> CUresult,
    now: impl FnOnce(CUstream) -> CUresult,
) -> CUresult {
    on_queue(stream, direct, |engine, queue| {
        let now = || code(as_own_call(|| now(pointer(queue.stream().handle))));
        if begins {
            return engine.begin_capture(queue, now);
        }
        let result = now();
        engine.end_capture();
        result
    })
}

/// `cuStreamDestroy`: with pending commands the driver's stream exists until they are done.
#[inline]
pub(crate) fn destroy_stream(stream: CUstream, direct: impl FnOnce() -> CUresult) -> CUresult {
    if !is_engaged() {
        return direct();
    }
    let Some(engine) = engine_for_call() else { return direct() };
    match guarded(None, || streams::end(stream.expose_provenance() as u64)) {
        Some(queue) => guarded(CUresult::ERROR_UNKNOWN, || {
            let result = status(engine.destroy_stream(&queue));
            preempted_streams::forget(queue.id());
            result
        }),
        None => direct(),
    }
}

/// Before a call that ends a context, or may end it. Pending commands are submitted and preempted streams restored,
/// since the driver would wait for them. The context is not used until `finish_context_end` or `cancel_context_end`.
pub(crate) fn begin_context_end(context: u64) {
    notify_engine(|engine| {
        engine.begin_context_end(Context(context));
        streams::of_context(context).iter().for_each(|queue| preempted_streams::forget(queue.id()));
    });
}

/// The call has not ended the context.
pub(crate) fn cancel_context_end(context: u64) {
    if let Some(engine) = engine_for_call() {
        guarded((), || engine.cancel_context_end(Context(context)));
    }
}

/// The context has ended. Not even the hook's own objects of it may be given to the driver.
pub(crate) fn finish_context_end(context: u64) {
    if let Some(engine) = engine_for_call() {
        guarded((), || {
            streams::forget_context(context);
            engine.finish_context_end(Context(context));
            engine.driver().gates.forget_context(context);
            parameters::forget_layouts();
            loads::forget_functions(Some(context));
        });
    }
}
