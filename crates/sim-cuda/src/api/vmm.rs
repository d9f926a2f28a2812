//! Virtual memory management: chunks of memory, addresses, and mappings of chunks to addresses.

pub(crate) use super::pool::*;

use super::functions;
use super::memory::address;
use super::pool::device_of;
use crate::border::{Ptr, Status};
use crate::state::context::{Device, current};
use crate::state::driver::{driver, driver_for_unsafe_call};
use sluice_driver_api::types::*;
use std::sync::Arc;

/// Sizes and alignments of chunks and addresses are multiples of this.
const GRANULARITY: usize = 2 << 20;

fn is_whole(len: usize) -> Status {
    if len == 0 || !len.is_multiple_of(GRANULARITY) { Err(CUresult::ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn handle_of(handle: CUmemGenericAllocationHandle) -> Result<usize, CUresult> {
    usize::try_from(handle).map_err(|_| CUresult::ERROR_INVALID_VALUE)
}

/// The device with which addresses are kept: the current one, or the first. Addresses belong to no device.
fn any_device() -> Result<Arc<Device>, CUresult> {
    match current() {
        Ok(context) => Ok(context.device.clone()),
        Err(_) => driver()?.device(0).cloned(),
    }
}

pub(crate) fn cuMemGetAllocationGranularity(
    out: Ptr<usize>,
    prop: Ptr<CUmemAllocationProp>,
    _which: CUmemAllocationGranularity_flags,
) -> Status {
    device_of(prop.read()?.location)?;
    out.write(GRANULARITY)
}

pub(crate) fn cuMemCreate(
    out: Ptr<CUmemGenericAllocationHandle>,
    len: usize,
    prop: Ptr<CUmemAllocationProp>,
    flags: u64,
) -> Status {
    let driver = driver_for_unsafe_call()?;
    is_whole(len)?;
    if flags != 0 || out.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let device = device_of(prop.read()?.location)?;
    out.write(driver.memory.create_chunk(&device, len)? as u64)
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(
    out: Ptr<CUmemAllocationProp>,
    handle: CUmemGenericAllocationHandle,
) -> Status {
    let chunk = driver()?.memory.chunk(handle_of(handle)?).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let location = CUmemLocation { kind: 1, id: chunk.device.number() };
    out.write(CUmemAllocationProp { kind: 1, location, ..CUmemAllocationProp::default() })
}

pub(crate) fn cuMemAddressReserve(
    out: Ptr<CUdeviceptr>,
    len: usize,
    alignment: usize,
    _wanted: CUdeviceptr,
    flags: u64,
) -> Status {
    is_whole(len)?;
    if flags != 0 || out.is_null() || !(alignment == 0 || alignment.is_power_of_two()) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let device = any_device()?;
    out.write(driver()?.memory.reserve(&device, len, alignment.max(GRANULARITY))? as u64)
}

pub(crate) fn cuMemMap(
    pointer: CUdeviceptr,
    len: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Status {
    is_whole(len)?;
    if offset != 0 || flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver()?.memory.map_chunk(address(pointer)?, len, handle_of(handle)?)
}

pub(crate) fn cuMemUnmap(pointer: CUdeviceptr, len: usize) -> Status {
    is_whole(len)?;
    // Submitted work may still use the memory. With the real driver that is an error of the program; here the process would crash.
    if let Ok(context) = current() {
        context.synchronize()?;
    }
    let address = address(pointer)?;
    driver()?.devices.iter().for_each(|device| device.words.forget(address, len));
    driver()?.memory.unmap(address, len)
}

/// Has no effect on mapped memory, which can always be read and written.
pub(crate) fn cuMemSetAccess(
    pointer: CUdeviceptr,
    len: usize,
    descriptors: Ptr<CUmemAccessDesc>,
    count: usize,
) -> Status {
    if descriptors.is_null() || count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver()?.memory.span(address(pointer)?, len).map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
}

pub(crate) fn cuMemGetAccess(flags: Ptr<u64>, _location: Ptr<CUmemLocation>, pointer: CUdeviceptr) -> Status {
    driver()?.memory.span(address(pointer)?, 1).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    flags.write(3)
}

functions! {
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) = driver()?.memory.release_chunk(handle_of(handle)?);
    fn cuMemRetainAllocationHandle(out: Ptr<CUmemGenericAllocationHandle>, at: Ptr<c_void>)
        = out.write(driver()?.memory.retain_chunk(at.address())? as u64);
    fn cuMemAddressFree(pointer: CUdeviceptr, len: usize)
        = driver()?.memory.release_addresses(address(pointer)?, len);
}
