//! Work that passes no launch gate: copies, memsets and other stream commands; and polls for completion.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::platform::Stream;

use super::guarded;
use crate::process;

/// Calls `real`, which submits a command to `stream`.
#[inline]
pub(crate) fn call((stream, per_thread): (CUstream, bool), real: impl FnOnce() -> CUresult) -> CUresult {
    let Some(managed) = process::device_for_call() else { return real() };
    let begun = process::with_thread(|thread| {
        let stream = Stream::new(stream.addr() as u64, per_thread, thread.id());
        managed.device.needs_note(stream, thread)
            && guarded(false, || managed.device.begin_work(stream, thread))
    });
    let result = real();
    if begun {
        guarded((), || managed.device.end_submission());
    }
    result
}

/// Calls `real`, which polls whether work is finished.
#[inline]
pub(crate) fn asked(real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    if let Some(managed) = process::device_for_call() {
        match result {
            CUresult::ERROR_NOT_READY => guarded((), || managed.device.poll_found_unfinished()),
            CUresult::SUCCESS => guarded((), || managed.device.poll_found_finished()),
            _ => {}
        }
    }
    result
}
