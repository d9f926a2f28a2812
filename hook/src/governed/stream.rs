//! Destruction of streams: after it no thread of the hook uses the handle.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::platform::Stream;

use super::guarded;
use crate::process::{self, CAPTURES};

/// `cuStreamDestroy`.
pub(crate) fn destroy(stream: CUstream, real: impl FnOnce() -> CUresult) -> CUresult {
    let stream = Stream::new(stream.addr() as u64, false, 0);
    if process::check_governed().is_err() {
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
