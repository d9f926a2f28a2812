//! The begin and the end of pools.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::pools::{PoolId, PoolLocation};

use crate::fork;
use crate::governed::deferred_release;
use crate::governed::pool_charges::{self, POOLS, correct_all, note_graph_memory, refresh, take};
use crate::guard::{guarded, written};
use crate::process;

/// Functions that make or find a pool with memory at `location`.
///
/// # Safety
/// `location` is null or readable, and `pool` null or writable. If `real` succeeds, it has written `pool` unless it is null.
pub(crate) unsafe fn locate(
    pool: *mut CUmemoryPool,
    location: *const CUmemLocation,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS && !fork::has_forked() {
        guarded((), || {
            // SAFETY: null, or read or written: the driver has succeeded.
            let (Some(pool), Some(location)) = (unsafe { (written(pool), written(location)) }) else {
                return;
            };
            let location = match u32::try_from(location.id) {
                Ok(device) if location.kind == CU_MEM_LOCATION_TYPE_DEVICE => PoolLocation::Device(device),
                _ => PoolLocation::Host,
            };
            lock(&POOLS).add(PoolId::Pool(pool.addr() as u64), location);
        });
    }
    result
}

/// `cuMemPoolDestroy`: the driver no longer reports the pool's size. What is allocated is charged by itself from here on. What was freed is
/// charged until the GPU has reached the work that the process has.
pub(crate) fn destroy(pool: CUmemoryPool, real: impl FnOnce() -> CUresult) -> CUresult {
    if fork::has_forked() {
        return real();
    }
    let id = PoolId::Pool(pool.addr() as u64);
    let taken = guarded(None, || {
        // What the pool keeps without need ends with it.
        pool_charges::trim(id);
        correct_all(|each| each == id);
        take(id)
    });
    let result = real();
    let Some((device, charged)) = taken else { return result };
    guarded((), || {
        if result != CUresult::SUCCESS {
            lock(&POOLS).restore(id, device, charged);
            return;
        }
        let left = process::allocations().detach_pool(pool.addr() as u64, charged);
        if let Some(managed) = process::device_in_use(device) {
            deferred_release::behind_all_work(managed, charged - left);
        }
    });
    result
}

/// Functions that add a node to a graph: `allocates` tells where a node has its memory if it allocates any.
pub(crate) fn add_node(
    real: impl FnOnce() -> CUresult,
    allocates: impl FnOnce() -> Option<CUmemLocation>,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS && !fork::has_forked() {
        let location = allocates().filter(|location| location.kind == CU_MEM_LOCATION_TYPE_DEVICE);
        guarded((), || location.into_iter().for_each(|location| note_graph_memory(location.id)));
    }
    result
}

/// Functions that make a pool, or the memory of graphs, smaller.
pub(crate) fn trim(real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    guarded((), || _ = refresh());
    result
}
