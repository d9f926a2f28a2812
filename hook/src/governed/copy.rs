//! Asynchronous copies. The first copy into GPU memory after a pause is the input of a request. A kernel may make a small one.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use crate::copy_kernel::{self, PlainCopy};
use crate::gpu::is_on_host;
use crate::hold_kernel;

/// From so many bytes on a copy takes longer than 20 microseconds over the host link. Shorter ones are not worth an event and the queries of the
/// context that a command costs: a launch-bound program makes thousands of them a second.
const LONG_COPY: usize = 1 << 20;

/// Whether a copy of so many bytes may take long.
pub(crate) const fn takes_long(bytes: usize) -> bool {
    bytes >= LONG_COPY
}

/// Calls `real`, unless a kernel makes the copy, which `plain` describes if it is between two addresses. Before that, a copy of input may
/// begin a request and its hold kernel. `takes_long`: see [`takes_long`].
#[inline]
pub(crate) fn call(
    stream: (CUstream, bool),
    is_input: impl FnOnce() -> bool,
    takes_long: bool,
    plain: impl FnOnce() -> Option<PlainCopy>,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    hold_kernel::before_copy(is_input);
    super::stream::command(stream, takes_long, || {
        if copy_kernel::make(stream, plain) { CUresult::SUCCESS } else { real() }
    })
}

/// Whether a copy between unified addresses goes from the host to the GPU.
pub(crate) fn is_input(to: CUdeviceptr, from: CUdeviceptr) -> bool {
    is_on_host(from) && !is_on_host(to)
}
