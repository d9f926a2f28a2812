//! Streams that wait for words in memory, and write them.

pub(crate) use super::set::*;

use super::memory::{address, span};
use super::with_twin;
use crate::border::{Ptr, Span, Status};
use crate::state::driver::driver;
use crate::state::host;
use crate::state::stream::{Null, Stream, stream};
use sluice_driver_api::types::*;
use sluice_sim::client::StreamCommand;
use sluice_sim::engine::{Compare, Condition};
use std::sync::Arc;

/// Checks what all memory operations have in common, and finds the word.
fn word(stream: &Stream, pointer: CUdeviceptr, is_wide: bool) -> Result<Span, CUresult> {
    if !stream.context.device.gpu.info().has_mem_ops {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let len = if is_wide { 8 } else { 4 };
    let span = span(pointer, len)?;
    if !address(pointer)?.is_multiple_of(len) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    // Memory operations as nodes of graphs are not simulated.
    stream.is_captured(|part| {
        part.capture.invalidate();
        Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED)
    })?;
    Ok(span)
}

fn wait(on: &Arc<Stream>, pointer: CUdeviceptr, value: u64, flags: c_uint, is_wide: bool) -> Status {
    let compare = match flags & !CU_STREAM_WAIT_VALUE_FLUSH {
        CU_STREAM_WAIT_VALUE_GEQ => Compare::AtLeast,
        CU_STREAM_WAIT_VALUE_EQ => Compare::Equal,
        CU_STREAM_WAIT_VALUE_AND => Compare::And,
        CU_STREAM_WAIT_VALUE_NOR => Compare::Nor,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    let word = word(on, pointer, is_wide)?;
    let device = &on.context.device;
    let registration = device.words.watch(&device.gpu, word);
    let condition = Condition { address: pointer, value, compare, is_wide };
    let mark = on.submit(StreamCommand::MemOp(Some(condition)), None)?;
    registration.submitted(mark, &on.context);
    Ok(())
}

fn write(on: &Arc<Stream>, pointer: CUdeviceptr, value: u64, flags: c_uint, is_wide: bool) -> Status {
    // The second version of these calls has no write without a fence: the H200's driver returns this error for that flag.
    if flags != CU_STREAM_WRITE_VALUE_DEFAULT {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let word = word(on, pointer, is_wide)?;
    let context = on.context.clone();
    let store = move || {
        let memory = driver().map(|driver| &driver.memory);
        if memory.is_ok_and(|memory| memory.is_read_only(word)) {
            context.fail(CUresult::ERROR_LAUNCH_FAILED);
        } else {
            word.store(value);
        }
    };
    let mark = on.submit(StreamCommand::MemOp(None), Some(Box::new(store)))?;
    host::apply_effects_at(on, mark);
    Ok(())
}

/// The fields that all kinds of operations of a batch have in common.
struct Operation {
    kind: u32,
    address: u64,
    value: u64,
    flags: u32,
}

/// Bytes of an operation of a batch.
const OPERATION: usize = 48;

impl Operation {
    fn read(at: Ptr<u8>) -> Result<Self, CUresult> {
        let four = |offset: usize| at.at(offset).cast::<u32>().read();
        let eight = |offset: usize| at.at(offset).cast::<u64>().read();
        Ok(Self { kind: four(0)?, address: eight(8)?, value: eight(16)?, flags: four(24)? })
    }

    fn submit(&self, on: &Arc<Stream>) -> Status {
        let low = self.value & u64::from(u32::MAX);
        match self.kind {
            1 => wait(on, self.address, low, self.flags, false),
            2 => write(on, self.address, low, self.flags, false),
            4 => wait(on, self.address, self.value, self.flags, true),
            5 => write(on, self.address, self.value, self.flags, true),
            // A barrier, or a flush of remote writes: no effect, because all operations are in order here.
            3 | 6 => Ok(()),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }
}

const BATCH: u32 = 256;

fn batch(
    on: Ptr<CUstream_st>,
    null: Null,
    count: c_uint,
    operations: Ptr<CUstreamBatchMemOpParams>,
    flags: c_uint,
) -> Status {
    if flags != 0 || count > BATCH || (operations.is_null() && count > 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let on = stream(on, null)?;
    let operations: Ptr<u8> = operations.cast();
    for index in 0..count as usize {
        Operation::read(operations.at(index * OPERATION))?.submit(&on)?;
    }
    Ok(())
}

/// The first version of these calls. Drivers refuse it unless a parameter of their kernel module allows it (observed
/// for the batch call on an H200).
fn first_version(on: Ptr<CUstream_st>, null: Null) -> Status {
    stream(on, null).and(Err(CUresult::ERROR_NOT_SUPPORTED))
}

with_twin! {
    fn cuStreamWaitValue32 / cuStreamWaitValue32_ptsz(
        on: Ptr<CUstream_st>, _pointer: CUdeviceptr, _value: u32, _flags: c_uint
    ) |null|
        = first_version(on, null);
    fn cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(
        on: Ptr<CUstream_st>, pointer: CUdeviceptr, value: u32, flags: c_uint
    ) |null|
        = wait(&stream(on, null)?, pointer, value.into(), flags, false);
    fn cuStreamWaitValue64 / cuStreamWaitValue64_ptsz(
        on: Ptr<CUstream_st>, _pointer: CUdeviceptr, _value: u64, _flags: c_uint
    ) |null|
        = first_version(on, null);
    fn cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(
        on: Ptr<CUstream_st>, pointer: CUdeviceptr, value: u64, flags: c_uint
    ) |null|
        = wait(&stream(on, null)?, pointer, value, flags, true);
    fn cuStreamWriteValue32 / cuStreamWriteValue32_ptsz(
        on: Ptr<CUstream_st>, _pointer: CUdeviceptr, _value: u32, _flags: c_uint
    ) |null|
        = first_version(on, null);
    fn cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(
        on: Ptr<CUstream_st>, pointer: CUdeviceptr, value: u32, flags: c_uint
    ) |null|
        = write(&stream(on, null)?, pointer, value.into(), flags, false);
    fn cuStreamWriteValue64 / cuStreamWriteValue64_ptsz(
        on: Ptr<CUstream_st>, _pointer: CUdeviceptr, _value: u64, _flags: c_uint
    ) |null|
        = first_version(on, null);
    fn cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(
        on: Ptr<CUstream_st>, pointer: CUdeviceptr, value: u64, flags: c_uint
    ) |null|
        = write(&stream(on, null)?, pointer, value, flags, true);
    fn cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz(
        on: Ptr<CUstream_st>, _count: c_uint, _operations: Ptr<CUstreamBatchMemOpParams>, _flags: c_uint
    ) |null|
        = first_version(on, null);
    fn cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz(
        on: Ptr<CUstream_st>, count: c_uint, operations: Ptr<CUstreamBatchMemOpParams>, flags: c_uint
    ) |null|
        = batch(on, null, count, operations, flags);
}
