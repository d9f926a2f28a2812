//! Asynchronous copies. The first copy into GPU memory after a pause is the input of a request.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use crate::gpu::is_on_host;
use crate::hold_kernel;

/// Calls `real`. Before that, a copy of input may begin a request and its hold kernel.
#[inline]
pub(crate) fn call(
    stream: (CUstream, bool),
    is_input: impl FnOnce() -> bool,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    hold_kernel::before_copy(is_input);
    super::stream::command(stream, true, real)
}

/// Whether a copy between unified addresses goes from the host to the GPU.
pub(crate) fn is_input(to: CUdeviceptr, from: CUdeviceptr) -> bool {
    is_on_host(from) && !is_on_host(to)
}
