//! The charges of pools, and their corrections by the sizes that the driver reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Outcome;
use sluice_hook_core::pools::{Correction, PoolId, PoolLocation, PoolTable};

use crate::governed::guarded;
use crate::gpu;
use crate::process::{self, ManagedDevice};
use crate::real;

pub(super) static POOLS: Mutex<PoolTable> = Mutex::new(PoolTable::new());
/// Whether a pool or a graph's memory was charged.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// Whether the program has captured an allocation: waits may show that its graph has taken memory.
static HAS_GRAPHS: AtomicBool = AtomicBool::new(false);
/// Whether memory was freed since the charges were last corrected.
static FREED: AtomicBool = AtomicBool::new(false);

/// From here on pools are charged.
pub(super) fn note_pools() {
    IN_USE.store(true, Relaxed);
}

/// From here on the memory that a device keeps for graphs is charged.
pub(super) fn note_graph_memory(device: CUdevice) {
    if let Ok(device) = u32::try_from(device)
        && let Ok(managed) = process::device_of(device.cast_signed())
    {
        managed.track();
        lock(&POOLS).add(PoolId::Graphs(device), PoolLocation::Device(device));
        note_pools();
        HAS_GRAPHS.store(true, Relaxed);
    }
}

/// Makes a correction of a pool's charge; `false` if the manager refuses it.
pub(super) fn correct(managed: &ManagedDevice, id: PoolId, correction: Correction) -> bool {
    match correction {
        Correction::Charge(0) => {}
        Correction::Charge(bytes) => {
            if let Outcome::Refused = managed.memory.reserve(bytes) {
                lock(&POOLS).refused(id, bytes);
                return false;
            }
        }
        Correction::Release(bytes) => managed.memory.release(bytes),
    }
    true
}

/// Memory of a pool was freed.
pub(in crate::governed) fn freed() {
    FREED.store(true, Relaxed);
    refresh();
}

/// A wait of the program has ended: the GPU may have reached frees.
#[inline]
pub(in crate::governed) fn after_wait() {
    let freed = FREED.load(Relaxed) && FREED.swap(false, Relaxed);
    if freed || HAS_GRAPHS.load(Relaxed) {
        guarded((), || _ = refresh());
    }
}

/// Corrects the charges of all pools. `true` if a charge was released.
pub(in crate::governed) fn refresh() -> bool {
    if !IN_USE.load(Relaxed) || process::has_forked() {
        return false;
    }
    let corrections: Vec<_> = {
        let mut pools = lock(&POOLS);
        let of_devices = pools.of_devices().into_iter();
        let settled = of_devices
            .filter_map(|(id, device)| Some((id, device, pools.settle(id, 0, reserved_bytes(id)?))));
        settled.collect()
    };
    let mut released = false;
    for (id, device, correction) in corrections {
        if let Some(managed) = process::device_in_use(device) {
            let _granted = correct(managed, id, correction);
            released |= matches!(correction, Correction::Release(1..));
        }
    }
    released
}

/// Memory of a pool was freed, so its size may change when the GPU has reached the free.
pub(super) fn note_free() {
    FREED.store(true, Relaxed);
}

/// Has the driver give back the memory that the device's pools and graphs keep and do not use, as it does itself when the GPU has no memory
/// left. `true` if a charge was released.
pub(in crate::governed) fn trim_unused(managed: &ManagedDevice) -> bool {
    // The program has not called these functions, and they must not end its captures.
    if !IN_USE.load(Relaxed) || process::has_forked() || process::CAPTURES.any() {
        return false;
    }
    let table = real::table();
    let pools = lock(&POOLS).of_devices();
    for (id, _) in pools.into_iter().filter(|(_, device)| *device == managed.ordinal) {
        let _trimmed = crate::governed::sync::may_wait(|| {
            let status = match id {
                PoolId::Pool(pool) => {
                    // SAFETY: a pool is taken out of the table before it ends.
                    table.cuMemPoolTrimTo.map(|trim| unsafe { trim(gpu::pointer(pool), 0) })
                }
                PoolId::Graphs(device) => {
                    // SAFETY: the device exists, because it was used.
                    table.cuDeviceGraphMemTrim.map(|trim| unsafe { trim(device.cast_signed()) })
                }
            };
            status.unwrap_or(CUresult::ERROR_NOT_SUPPORTED)
        });
    }
    refresh()
}

/// Bytes that the driver has for a pool or for graphs, freed ones included.
pub(super) fn reserved_bytes(id: PoolId) -> Option<u64> {
    query(|| match id {
        PoolId::Pool(pool) => gpu::pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
        PoolId::Graphs(device) => gpu::graph_bytes(device.cast_signed()),
    })
}

/// Asks the driver something that the program has not asked. It must not end the program's captures.
fn query<T>(ask: impl FnOnce() -> T) -> T {
    if process::CAPTURES.any() { gpu::with_relaxed_capture_mode(ask) } else { ask() }
}

/// Bytes of a pool that the program has freed.
pub(super) fn unused_bytes(id: PoolId) -> u64 {
    let PoolId::Pool(pool) = id else { return 0 };
    let [reserved, used] = [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT]
        .map(|attribute| query(|| gpu::pool_bytes(pool, attribute)).unwrap_or(0));
    reserved.saturating_sub(used)
}
