//! The begin and the end of pools.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::pools::{PoolId, PoolLocation};

use super::charges::{POOLS, refresh};
use crate::governed::guarded;
use crate::process;

/// `cuMemPoolCreate`.
///
/// # Safety
/// `properties` is null or readable. If `real` succeeds, it has written `pool`.
pub(crate) unsafe fn create(
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    if properties.is_null() {
        return real();
    }
    // SAFETY: as the caller guarantees; the location is a part of the properties.
    unsafe { locate(pool, &raw const (*properties).location, real) }
}

/// Functions that make or find a pool with memory at `location`.
///
/// # Safety
/// `location` is null or readable. If `real` succeeds, it has written `pool`.
pub(crate) unsafe fn locate(
    pool: *mut CUmemoryPool,
    location: *const CUmemLocation,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS && !process::has_forked() {
        guarded((), || {
            // SAFETY: the driver has succeeded, so it has read the location and written the pool.
            let (pool, location) = unsafe { (*pool, *location) };
            let location = match u32::try_from(location.id) {
                Ok(device) if location.kind == CU_MEM_LOCATION_TYPE_DEVICE => PoolLocation::Device(device),
                _ => PoolLocation::Host,
            };
            lock(&POOLS).add(PoolId::Pool(pool.addr() as u64), location);
        });
    }
    result
}

/// `cuMemPoolDestroy`: the driver no longer reports the pool's size, so what is left of it is charged by allocation.
pub(crate) fn destroy(pool: CUmemoryPool, real: impl FnOnce() -> CUresult) -> CUresult {
    if process::has_forked() {
        return real();
    }
    let id = PoolId::Pool(pool.addr() as u64);
    // Before the call: another thread must not ask for the size of a pool that does not exist.
    let taken = guarded(None, || {
        refresh();
        lock(&POOLS).remove(id)
    });
    let result = real();
    let Some((device, charged)) = taken else { return result };
    guarded((), || {
        if result != CUresult::SUCCESS {
            lock(&POOLS).restore(id, device, charged);
            return;
        }
        let left = process::allocations().detach_pool(pool.addr() as u64);
        if let Some(managed) = process::device_in_use(device) {
            managed.memory.release(charged.saturating_sub(left));
        }
    });
    result
}

/// Functions that make a pool, or the memory of graphs, smaller.
pub(crate) fn trim(real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    guarded((), || _ = refresh());
    result
}

/// Takes a device's pools out before a call that may end its primary context, and with it their memory and handles. With their charges.
pub(in crate::governed) fn take_of_device(device: CUdevice) -> Vec<(PoolId, u64)> {
    let mut pools = lock(&POOLS);
    let of_device = pools.of_devices().into_iter().filter(|(_, of)| of.cast_signed() == device);
    of_device.filter_map(|(id, _)| Some((id, pools.remove(id)?.1))).collect()
}

/// The pools that were taken have ended.
pub(in crate::governed) fn forget(device: CUdevice, pools: &[(PoolId, u64)]) {
    if let Ok(device) = u32::try_from(device)
        && let Some(managed) = process::device_in_use(device)
    {
        managed.memory.release(pools.iter().map(|(_, charged)| charged).sum());
    }
}

/// The pools that were taken have not ended.
pub(in crate::governed) fn put_back(device: CUdevice, pools: &[(PoolId, u64)]) {
    let Ok(device) = u32::try_from(device) else { return };
    let mut table = lock(&POOLS);
    pools.iter().for_each(|(id, charged)| table.restore(*id, device, *charged));
}
