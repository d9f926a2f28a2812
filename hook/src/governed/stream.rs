//! Calls on streams that pass no launch gate: commands such as copies and memsets, polls for completion, captures, destruction.
//!
//! Captures are counted, so that no thread of the hook uses a stream while that would invalidate a capture. After the destruction of a
//! stream no thread of the hook uses its handle.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::platform::Stream;
use sluice_hook_core::thread_state::ThreadState;

use crate::captures::CAPTURES;
use crate::fork;
use crate::gpu;
use crate::guard::{Uncancelled, guarded};
use crate::hold_kernel;
use crate::process;
use crate::settings;
use crate::thread_state;

/// Calls `real`, which submits a command to `stream`. `waits`: it may take long and needs no grant.
#[inline]
pub(crate) fn command(
    (stream, per_thread): (CUstream, bool),
    waits: bool,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(managed) = process::device_for_call() else { return real() };
    let begun = thread_state::with_thread(|thread| {
        let stream = Stream::new(stream.addr() as u64, per_thread, thread.id());
        let is_noted = waits
            && managed.device.returns_early()
            && guarded(false, || managed.device.begin_waiting_command(stream));
        is_noted
            || managed.device.needs_note(stream, thread)
                && guarded(false, || managed.device.begin_work(stream, thread))
    });
    if !begun {
        return real();
    }
    let _uncancelled = Uncancelled::begin();
    let result = real();
    guarded((), || managed.device.end_submission());
    result
}

/// Calls `real`, which polls whether work is finished.
#[inline]
pub(crate) fn asked(real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    if let Some(managed) = process::device_for_call() {
        match result {
            CUresult::ERROR_NOT_READY => guarded((), || managed.device.poll_found_unfinished()),
            CUresult::SUCCESS => guarded((), || {
                let thread = thread_state::with_thread(ThreadState::id);
                managed.device.poll_found_finished(thread);
            }),
            _ => {}
        }
    }
    result
}

/// Begins or ends a capture.
pub(crate) fn capture(
    begins: bool,
    (stream, per_thread): (CUstream, bool),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    if fork::has_forked() {
        return real();
    }
    let stream =
        thread_state::with_thread(|thread| Stream::new(stream.addr() as u64, per_thread, thread.id()));
    if begins { begin_capture(stream, real) } else { end_capture(stream.handle, real) }
}

fn begin_capture(stream: Stream, real: impl FnOnce() -> CUresult) -> CUresult {
    // Calls in a capture are not seen as the continuation of a request.
    hold_kernel::before_wait(true);
    guarded((), || {
        let is_first = CAPTURES.begin(stream.handle, gpu::context_of(stream).unwrap_or(0));
        // From here on every launch takes the slow path, and the tracker has stopped using default streams.
        for managed in process::devices() {
            managed.device.prepare_capture(is_first);
        }
    });
    let result = real();
    if result != CUresult::SUCCESS {
        guarded((), || CAPTURES.end(stream.handle));
    }
    result
}

fn end_capture(stream: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    // Only these results leave the capture active.
    let goes_on =
        [CUresult::ERROR_STREAM_CAPTURE_WRONG_THREAD, CUresult::ERROR_INVALID_VALUE].contains(&result);
    if !goes_on {
        guarded((), || CAPTURES.end(stream));
    }
    result
}

/// `cuStreamDestroy`.
pub(crate) fn destroy(stream: CUstream, real: impl FnOnce() -> CUresult) -> CUresult {
    let stream = Stream::new(stream.addr() as u64, false, 0);
    if settings::check_governed().is_err() {
        return real();
    }
    // A stream belongs to one device, but finding out which one would cost a driver call.
    let guards: Vec<_> = guarded(Vec::new(), || {
        let guards = process::devices().map(|managed| managed.device.forget_stream(stream)).collect();
        if CAPTURES.any() {
            CAPTURES.end(stream.handle);
        }
        guards
    });
    let result = real();
    drop(guards);
    result
}
