//! Asynchronous copies. The first copy into GPU memory after a pause is the input of a request.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use crate::{hold_kernel, real};

/// Calls `real`. Before that, a copy of input may begin a request and its hold kernel.
#[inline]
pub(crate) fn call(
    stream: (CUstream, bool),
    is_input: impl FnOnce() -> bool,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    hold_kernel::before_copy(is_input);
    super::stream::command(stream, real)
}

/// Whether a copy between unified addresses goes from the host to the GPU.
pub(crate) fn is_input(to: CUdeviceptr, from: CUdeviceptr) -> bool {
    is_on_host(from) && !is_on_host(to)
}

/// Whether one end of a described copy is on the host.
pub(crate) fn is_host_end(kind: CUmemorytype, unified: CUdeviceptr) -> bool {
    kind == CU_MEMORYTYPE_HOST || kind == CU_MEMORYTYPE_UNIFIED && is_on_host(unified)
}

/// Whether a unified address belongs to the host. The driver does not know host memory that it did not pin.
fn is_on_host(address: CUdeviceptr) -> bool {
    memory_type(address) != Some(CU_MEMORYTYPE_DEVICE)
}

/// The kind of memory at an address; `None` if the driver does not know it.
pub(crate) fn memory_type(address: CUdeviceptr) -> Option<CUmemorytype> {
    let mut kind: CUmemorytype = 0;
    let ask = real::table().cuPointerGetAttribute?;
    // SAFETY: the attribute is an unsigned int, and `kind` is writable; any address may be queried.
    let asked = unsafe { ask((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) };
    (asked == CUresult::SUCCESS).then_some(kind)
}
