//! Stream captures are counted, so that no thread of the hook uses a stream while that would invalidate a capture.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::platform::Stream;

use super::guarded;
use crate::process::{self, CAPTURES};

/// Begins or ends a capture.
pub(crate) fn call(
    begins: bool,
    (stream, per_thread): (CUstream, bool),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let stream =
        process::with_thread(|thread| Stream::new(stream.addr() as u64, per_thread, thread.id())).handle;
    if begins { begin(stream, real) } else { end(stream, real) }
}

fn begin(stream: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    guarded((), || {
        CAPTURES.begin(stream);
        // From here on every launch takes the slow path, and the tracker has stopped using the legacy stream.
        for managed in process::devices() {
            managed.device.prepare_capture();
        }
    });
    let result = real();
    if result != CUresult::SUCCESS {
        guarded((), || CAPTURES.end(stream));
    }
    result
}

fn end(stream: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    // Only these results leave the capture active.
    let goes_on =
        [CUresult::ERROR_STREAM_CAPTURE_WRONG_THREAD, CUresult::ERROR_INVALID_VALUE].contains(&result);
    if !goes_on {
        guarded((), || CAPTURES.end(stream));
    }
    result
}
