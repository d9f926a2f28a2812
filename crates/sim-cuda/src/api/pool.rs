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

/// The device of a pool, and whether its memory is the host's.
fn pool_location(location: CUmemLocation) -> Result<(Arc<Device>, bool), CUresult> {
    if location.kind == CU_MEM_LOCATION_TYPE_HOST {
        return Ok((driver()?.device(0)?.clone(), true));
    }
    Ok((device_of(location)?, false))
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
    out.required()?;
    let pool = match pool {
        Some(pool) => pool,
        None => current_pool(&stream.context.device)?,
    };
    let (of_device, is_host) =
        driver.memory.with_pool(pool, |pool, _, _| Ok((pool.device.ordinal, pool.is_host)))?;
    if of_device != stream.context.device.ordinal || out.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let origin = match (is_host, stream.is_being_captured()) {
        (true, _) => Origin::HostPool(pool),
        (_, true) => Origin::Graph,
        _ => Origin::Pool(pool),
    };
    let allocate = || driver.memory.allocate(&stream.context, len, origin, 0);
    if let Origin::Pool(pool) = origin {
        // Submitted before memory is taken: if the stream refuses it, freed memory stays free.
        stream.work(Work::Empty, None)?;
        let address = driver.memory.reuse(pool, len, stream.handle).map_or_else(allocate, Ok)?;
        return out.write(address as u64);
    }
    let address = allocate()?;
    // The address belongs to the graph from here on.
    let back: Effect = Arc::new(move || driver.memory.back_graph_memory(address));
    let effect = (origin == Origin::Graph).then_some(back);
    if let Err(error) = stream.work(Work::Empty, effect) {
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
        let number = driver()?.memory.begin_free(address, stream.handle);
        let free: Effect = Arc::new(move || {
            let _ = driver().map(|driver| driver.memory.finish_free(address, number));
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
    let (device, is_host) = pool_location(props.read()?.location)?;
    out.write_handle(driver()?.memory.create_pool(&device, is_host))
}

pub(crate) fn cuMemPoolTrimTo(pool: Ptr<CUmemPoolHandle_st>, keep: usize) -> Status {
    let memory = &driver()?.memory;
    let device = memory.with_pool(pool.address(), |pool, _, _| Ok(pool.device.clone()))?;
    device.gpu.apply_effects();
    memory.trim(pool.address(), keep);
    Ok(())
}

/// Attributes: 1 to 3 are flags of four bytes, 4 is the release threshold, 5 the bytes of the pool, 7 those in use, 6 and 8 the most so far.
pub(crate) fn cuMemPoolGetAttribute(
    pool: Ptr<CUmemPoolHandle_st>,
    attribute: CUmemPool_attribute,
    value: Ptr<c_void>,
) -> Status {
    let memory = &driver()?.memory;
    let reserved = memory.pool_reserved(pool.address());
    memory.with_pool(pool.address(), |pool, used, high| {
        let set = pool.attributes.get(&attribute).copied();
        match attribute {
            1..=3 => value.cast().write(i32::from(set.unwrap_or(1) != 0)),
            4 => value.cast().write(set.unwrap_or(0)),
            5 => value.cast().write(reserved as u64),
            7 => value.cast().write(used as u64),
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

/// Attribute 2: the bytes that the device has for graphs.
pub(crate) fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: Ptr<c_void>,
) -> Status {
    let driver = driver()?;
    let reserved = driver.memory.graph_memory(driver.device(device)?.ordinal);
    match attribute {
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => value.cast().write(reserved as u64),
        _ => Err(CUresult::ERROR_NOT_SUPPORTED),
    }
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
