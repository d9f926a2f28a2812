//! The charges of pools, and their corrections by the sizes that the driver reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Outcome;
use sluice_hook_core::pools::{Correction, PoolId, PoolLocation, PoolTable};

use crate::governed::guarded;
use crate::gpu;
use crate::process::{self, ManagedDevice};

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

/// Bytes that the driver has for a pool or for graphs, freed ones included.
pub(super) fn reserved_bytes(id: PoolId) -> Option<u64> {
    match id {
        PoolId::Pool(pool) => gpu::pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
        PoolId::Graphs(device) => gpu::graph_bytes(device.cast_signed()),
    }
}

/// Bytes of a pool that the program has freed.
pub(super) fn unused_bytes(id: PoolId) -> u64 {
    let PoolId::Pool(pool) = id else { return 0 };
    let [reserved, used] = [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT]
        .map(|attribute| gpu::pool_bytes(pool, attribute).unwrap_or(0));
    reserved.saturating_sub(used)
}
