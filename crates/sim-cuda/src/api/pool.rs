//! Memory pools and stream-ordered allocation.
//!
//! An allocation is counted when it is requested, and returned when its stream has reached the free.

pub(crate) use super::memory::*;

use super::memory::address;
use super::{functions, with_twin};
use crate::border::{Ptr, Status};
use crate::state::context::Device;
use crate::state::driver::driver;
use crate::state::lock;
use crate::state::memory::{Origin, PoolId};
use crate::state::stream::{Effect, Null, stream};
use sluice_driver_api::types::*;
use sluice_sim::engine::Work;
use std::sync::Arc;

pub(super) fn device_of(location: CUmemLocation) -> Result<Arc<Device>, CUresult> {
    if location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    driver()?.device(location.id).cloned()
}

fn current_pool(device: &Arc<Device>) -> Result<PoolId, CUresult> {
    let set = *lock(&device.current_pool);
    Ok(set.unwrap_or(driver()?.memory.default_pool(device)))
}

fn allocate(
    out: Ptr<CUdeviceptr>,
    len: usize,
    pool: Option<PoolId>,
    on: Ptr<CUstream_st>,
    null: Null,
) -> Status {
    let driver = driver()?;
    let stream = stream(on, null)?;
    let pool = match pool {
        Some(pool) => pool,
        None => current_pool(&stream.context.device)?,
    };
    let of_device = driver.memory.with_pool(pool, |pool, _, _| Ok(pool.device.ordinal))?;
    if of_device != stream.context.device.ordinal || out.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let address = driver.memory.allocate(&stream.context, len, Origin::Pool(pool), 0)?;
    // In a graph the node only orders others; the address belongs to the graph from here on.
    if let Err(error) = stream.work(Work::Empty, None) {
        driver.memory.release(address, |_| true)?;
        return Err(error);
    }
    out.write(address as u64)
}

with_twin! {
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(out: Ptr<CUdeviceptr>, len: usize, on: Ptr<CUstream_st>) |null|
        = allocate(out, len, None, on, null);
    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        out: Ptr<CUdeviceptr>, len: usize, pool: Ptr<CUmemPoolHandle_st>, on: Ptr<CUstream_st>
    ) |null|
        = allocate(out, len, Some(pool.address()), on, null);

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(pointer: CUdeviceptr, on: Ptr<CUstream_st>) |null| = {
        let stream = stream(on, null)?;
        if pointer == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let address = address(pointer)?;
        let freed = driver()?.memory.at(address).filter(|piece| piece.origin.is_freed_by_address());
        freed.ok_or(CUresult::ERROR_INVALID_VALUE)?;
        if stream.is_captured(|part| part.add(&stream, Work::Empty, None))? {
            return Ok(());
        }
        let free: Effect = Arc::new(move || {
            // A second free of the same memory has no effect, as with the real driver's pools.
            let _ = driver().and_then(|driver| driver.memory.release(address, Origin::is_freed_by_address));
        });
        stream.work(Work::Empty, Some(free))
    };
}

pub(crate) fn cuDeviceGetDefaultMemPool(out: Ptr<CUmemoryPool>, device: CUdevice) -> Status {
    let driver = driver()?;
    out.write_handle(driver.memory.default_pool(driver.device(device)?))
}

pub(crate) fn cuDeviceSetMemPool(device: CUdevice, pool: Ptr<CUmemPoolHandle_st>) -> Status {
    let driver = driver()?;
    driver.memory.with_pool(pool.address(), |_, _, _| Ok(()))?;
    *lock(&driver.device(device)?.current_pool) = Some(pool.address());
    Ok(())
}

pub(crate) fn cuMemPoolCreate(out: Ptr<CUmemoryPool>, props: Ptr<CUmemPoolProps>) -> Status {
    let device = device_of(props.read()?.location)?;
    out.write_handle(driver()?.memory.create_pool(&device))
}

pub(crate) fn cuMemPoolTrimTo(pool: Ptr<CUmemPoolHandle_st>, _keep: usize) -> Status {
    driver()?.memory.with_pool(pool.address(), |pool, _, _| {
        pool.device.gpu.apply_effects();
        Ok(())
    })
}

/// Attributes: 1 to 3 are flags of four bytes, 4 is the release threshold, 5 and 7 are the bytes in use, 6 and 8 the most so far.
pub(crate) fn cuMemPoolGetAttribute(
    pool: Ptr<CUmemPoolHandle_st>,
    attribute: CUmemPool_attribute,
    value: Ptr<c_void>,
) -> Status {
    driver()?.memory.with_pool(pool.address(), |pool, used, high| {
        let set = pool.attributes.get(&attribute).copied();
        match attribute {
            1..=3 => value.cast().write(i32::from(set.unwrap_or(1) != 0)),
            4 => value.cast().write(set.unwrap_or(0)),
            5 | 7 => value.cast().write(used as u64),
            6 | 8 => value.cast().write(high as u64),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    })
}

pub(crate) fn cuMemPoolSetAttribute(
    pool: Ptr<CUmemPoolHandle_st>,
    attribute: CUmemPool_attribute,
    value: Ptr<c_void>,
) -> Status {
    let set = match attribute {
        1..=3 => u64::from(value.cast::<u32>().read()?),
        4 | 6 | 8 => value.cast::<u64>().read()?,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    driver()?.memory.with_pool(pool.address(), |pool, _, _| {
        pool.attributes.insert(attribute, set);
        Ok(())
    })
}

functions! {
    fn cuDeviceGetMemPool(out: Ptr<CUmemoryPool>, device: CUdevice)
        = out.write_handle(current_pool(driver()?.device(device)?)?);
    fn cuMemGetDefaultMemPool(out: Ptr<CUmemoryPool>, location: Ptr<CUmemLocation>, _kind: CUmemAllocationType)
        = out.write_handle(driver()?.memory.default_pool(&device_of(location.read()?)?));
    fn cuMemGetMemPool(out: Ptr<CUmemoryPool>, location: Ptr<CUmemLocation>, _kind: CUmemAllocationType)
        = out.write_handle(current_pool(&device_of(location.read()?)?)?);
    fn cuMemPoolDestroy(pool: Ptr<CUmemPoolHandle_st>) = driver()?.memory.destroy_pool(pool.address());
    fn cuMemPoolSetAccess(pool: Ptr<CUmemPoolHandle_st>, _descriptors: Ptr<CUmemAccessDesc>, _count: usize)
        = driver()?.memory.with_pool(pool.address(), |_, _, _| Ok(()));
}
