//! Stream memory operations (waits for and writes of words), in the driver's layout.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::ids::Code;

use super::code;
use crate::real;

/// Kinds of operations of a batch (`CUstreamBatchMemOpType`).
pub(super) const WAIT: u32 = 1;
pub(super) const WRITE: u32 = 2;

/// Whether the driver accepts these operations, on a temporary stream in the current context.
pub(super) fn try_out(operations: &mut [Operation]) -> Result<(), Code> {
    const MISSING: Code = Code(CUresult::ERROR_NOT_SUPPORTED.0);
    let table = real::table();
    let (create, destroy) = (table.cuStreamCreate.ok_or(MISSING)?, table.cuStreamDestroy_v2.ok_or(MISSING)?);
    let mut stream = std::ptr::null_mut();
    // SAFETY: `stream` is writable, and then a stream of the current context.
    unsafe {
        code(create(&raw mut stream, CU_STREAM_NON_BLOCKING))?;
        let taken = batch(stream, operations);
        let _destroyed = destroy(stream);
        taken
    }
}

/// One operation of a batch, in the driver's layout (`CUstreamBatchMemOpParams`).
#[repr(C)]
pub(super) struct Operation {
    kind: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    rest: u64,
}

const _: () = assert!(size_of::<Operation>() == 48);

impl Operation {
    pub(super) fn new(kind: u32, address: u64, value: u32, flags: u32) -> Self {
        Self { kind, address, value: value.into(), flags, alias: 0, rest: 0 }
    }
}

/// Submits operations to a stream as one batch.
pub(super) fn batch(stream: CUstream, operations: &mut [Operation]) -> Result<(), Code> {
    let table = real::table();
    let Some(make) = table.cuStreamBatchMemOp_v2 else { return Err(Code(CUresult::ERROR_NOT_SUPPORTED.0)) };
    let count = u32::try_from(operations.len()).unwrap_or(0);
    // SAFETY: so many operations are readable and writable; the stream is alive.
    code(unsafe { make(stream, count, operations.as_mut_ptr().cast(), 0) })
}
