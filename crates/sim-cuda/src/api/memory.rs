//! Allocation, registration, and attributes of pointers.

pub(crate) use super::module::*;
// Functions that differ in name only.
pub(crate) use self::cuMemHostRegister_v2 as cuMemHostRegister;

use super::functions;
use crate::border::{Ptr, Span, Status};
use crate::state::context::current;
use crate::state::driver::{driver, driver_for_unsafe_call};
use crate::state::memory::{Origin, Piece};
use crate::state::status_of;
use sluice_driver_api::types::*;
use std::sync::Arc;

/// Row alignment of pitched allocations (the driver's choice on this GPU).
const PITCH: usize = 512;

/// A device pointer as an address of this process.
pub(super) fn address(pointer: CUdeviceptr) -> Result<usize, CUresult> {
    usize::try_from(pointer).map_err(|_| CUresult::ERROR_INVALID_VALUE)
}

/// Device memory, or host memory that the device can use.
pub(super) fn span(pointer: CUdeviceptr, len: usize) -> Result<Span, CUresult> {
    driver()?.memory.span(address(pointer)?, len).ok_or(CUresult::ERROR_INVALID_VALUE)
}

fn allocate(pointer: Ptr<CUdeviceptr>, len: usize, origin: Origin, flags: c_uint) -> Status {
    let driver = driver_for_unsafe_call()?;
    let context = current()?;
    if pointer.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    pointer.write(driver.memory.allocate(&context, len, origin, flags)? as u64)
}

pub(crate) fn cuMemAllocManaged(pointer: Ptr<CUdeviceptr>, len: usize, flags: c_uint) -> Status {
    if !matches!(flags, 1 | 2) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    allocate(pointer, len, Origin::Managed, flags)
}

pub(crate) fn cuMemAllocPitch_v2(
    pointer: Ptr<CUdeviceptr>,
    pitch: Ptr<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Status {
    if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let len = row.checked_mul(height).ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    pitch.required()?;
    allocate(pointer, len, Origin::Device, 0)?;
    pitch.write(row)
}

/// Frees the memory that begins at an address, if it has one of these origins, after everything that was submitted to its context.
fn free(address: usize, which: impl Fn(Origin) -> bool, error: CUresult) -> Status {
    let driver = driver()?;
    let piece = driver.memory.at(address).filter(|piece| which(piece.origin)).ok_or(error)?;
    if let Some(context) = driver.contexts.get(piece.context) {
        context.synchronize()?;
    }
    driver.memory.release(address, which)
}

pub(crate) fn cuMemFree_v2(pointer: CUdeviceptr) -> Status {
    driver_for_unsafe_call()?;
    if pointer == 0 {
        return Ok(());
    }
    free(address(pointer)?, Origin::is_freed_by_address, CUresult::ERROR_INVALID_VALUE)
}

pub(crate) fn cuMemGetInfo_v2(free: Ptr<usize>, total: Ptr<usize>) -> Status {
    let (now_free, of) = current()?.device.gpu.memory().map_err(status_of)?;
    free.write_if_wanted(usize::try_from(now_free).unwrap_or(usize::MAX));
    total.write_if_wanted(usize::try_from(of).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) fn cuMemHostAlloc(pointer: Ptr<*mut c_void>, len: usize, flags: c_uint) -> Status {
    let driver = driver_for_unsafe_call()?;
    pointer.required()?;
    let address = driver.memory.allocate(&*current()?, len, Origin::Host, flags)?;
    pointer.write_handle(address)
}

pub(crate) fn cuMemFreeHost(pointer: Ptr<c_void>) -> Status {
    driver_for_unsafe_call()?;
    free(pointer.address(), |origin| origin == Origin::Host, CUresult::ERROR_INVALID_VALUE)
}

/// Pinned or registered host memory that contains an address.
fn host_piece(pointer: Ptr<c_void>) -> Result<Arc<Piece>, CUresult> {
    let piece = driver()?.memory.find(pointer.address()).filter(|piece| piece.origin.is_host());
    piece.ok_or(CUresult::ERROR_INVALID_VALUE)
}

pub(crate) fn cuMemGetAddressRange_v2(
    base: Ptr<CUdeviceptr>,
    len: Ptr<usize>,
    pointer: CUdeviceptr,
) -> Status {
    let found = driver()?.memory.find(address(pointer)?).ok_or(CUresult::ERROR_NOT_FOUND)?;
    base.write_if_wanted(found.address as u64);
    len.write_if_wanted(found.len);
    Ok(())
}

/// Writes one attribute of a pointer. Returns an error if the pointer does not have it.
fn attribute(data: Ptr<c_void>, attribute: CUpointer_attribute, pointer: CUdeviceptr) -> Status {
    let at = address(pointer)?;
    let found = driver()?.memory.find(at).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let is_host = found.origin.is_host();
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => data.cast().write(found.context),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            data.cast().write(if is_host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE })
        }
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast().write(pointer),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if is_host || found.origin == Origin::Managed => {
            data.cast().write(at)
        }
        CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(CUresult::ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => data.cast().write(0i32),
        CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast().write(found.address as u64),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast().write(i32::from(found.origin == Origin::Managed)),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().write(found.device.number()),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast().write(found.address),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast().write(found.len),
        CU_POINTER_ATTRIBUTE_MAPPED => data.cast().write(i32::from(driver()?.memory.span(at, 1).is_some())),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            data.cast().write(if found.is_read_only() { 1i32 } else { 3i32 })
        }
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => data.cast().write(match found.origin {
            Origin::Pool(pool) => pool,
            _ => 0,
        }),
        _ => data.cast().write(0i32),
    }
}

pub(crate) fn cuPointerGetAttribute(
    data: Ptr<c_void>,
    which: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Status {
    if data.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    attribute(data, which, pointer)
}

/// For a pointer that the driver does not know, all attributes are 0, and the call succeeds.
pub(crate) fn cuPointerGetAttributes(
    count: c_uint,
    which: Ptr<CUpointer_attribute>,
    data: Ptr<*mut c_void>,
    pointer: CUdeviceptr,
) -> Status {
    for index in 0..count as usize {
        let (which, data) = (which.at(index).read()?, data.at(index).read_pointer()?);
        if attribute(data, which, pointer).is_err() {
            match which {
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE
                | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                | CU_POINTER_ATTRIBUTE_IS_MANAGED
                | CU_POINTER_ATTRIBUTE_MAPPED => data.cast().write(0i32)?,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().write(-2i32)?,
                _ => data.cast().write(0usize)?,
            }
        }
    }
    Ok(())
}

pub(crate) fn cuPointerSetAttribute(
    _value: Ptr<c_void>,
    _which: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Status {
    let found = driver()?.memory.find(address(pointer)?);
    found.map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
}

functions! {
    fn cuMemHostRegister_v2(pointer: Ptr<c_void>, len: usize, flags: c_uint)
        = driver_for_unsafe_call()?.memory.register(&*current()?, pointer.address(), len, flags);
    fn cuMemHostUnregister(pointer: Ptr<c_void>)
        = free(pointer.address(), |it| it == Origin::Registered, CUresult::ERROR_HOST_MEMORY_NOT_REGISTERED);
    fn cuMemHostGetDevicePointer_v2(out: Ptr<CUdeviceptr>, pointer: Ptr<c_void>, _flags: c_uint)
        = host_piece(pointer).and_then(|_| out.write(pointer.address() as u64));
    fn cuMemHostGetFlags(flags: Ptr<c_uint>, pointer: Ptr<c_void>) = flags.write(host_piece(pointer)?.flags);
    fn cuMemAlloc_v2(pointer: Ptr<CUdeviceptr>, len: usize) = allocate(pointer, len, Origin::Device, 0);
    fn cuMemAllocHost(pointer: Ptr<*mut c_void>, len: c_uint) = cuMemHostAlloc(pointer, len as usize, 0);
    fn cuMemAllocHost_v2(pointer: Ptr<*mut c_void>, len: usize) = cuMemHostAlloc(pointer, len, 0);
}
