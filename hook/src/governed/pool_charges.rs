//! The charges of pools, and their corrections by the sizes that the driver reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Outcome;
use sluice_hook_core::pools::{Correction, PoolId, PoolLocation, PoolTable};

use super::deferred_release;
use crate::captures::CAPTURES;
use crate::fork;
use crate::gpu;
use crate::guard::guarded;
use crate::process::{self, ManagedDevice};
use crate::{hold_kernel, real};

/// Never locked during a call of the driver. It is locked while the manager answers a correction.
pub(super) static POOLS: Mutex<PoolTable> = Mutex::new(PoolTable::new());
/// Whether a pool or a graph's memory was charged.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// Whether the program has captured an allocation.
static HAS_GRAPHS: AtomicBool = AtomicBool::new(false);
/// Whether a graph was launched since then, and since the memory of graphs was last read: the launch may have taken memory.
static LAUNCHED: AtomicBool = AtomicBool::new(false);
/// Whether memory was freed since the charges were last corrected.
static FREED: AtomicBool = AtomicBool::new(false);

/// How often a size is read again because another thread has corrected the charge meanwhile.
const MAX_QUERIES: usize = 8;

/// How long to sleep between two checks whether a pool's size is being queried: as long as a query takes.
const QUERY_CHECK: Duration = Duration::from_micros(20);

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

/// A graph was launched.
#[inline]
pub(crate) fn note_graph_launch() {
    if HAS_GRAPHS.load(Relaxed) {
        LAUNCHED.store(true, Relaxed);
    }
}

/// Records an allocation that was made, for which `prepaid` bytes are charged, and corrects the charge by the pool's size; with 0 bytes only
/// the latter. `Some(false)` if the manager refuses it, `None` if the driver does not report the size.
pub(super) fn settle_by_size(managed: &ManagedDevice, id: PoolId, prepaid: u64) -> Option<bool> {
    for _ in 0..MAX_QUERIES {
        let query = lock(&POOLS).begin_query(id)?;
        let reserved = reserved_bytes(id);
        let mut pools = lock(&POOLS);
        let is_current = pools.end_query(query);
        let reserved = reserved?;
        if is_current {
            return Some(pools.settle(id, prepaid, reserved, |correction| correct(managed, correction)));
        }
    }
    lock(&POOLS).keep(id, prepaid);
    note_free();
    Some(true)
}

/// Makes a correction of a pool's charge; `false` if the manager refuses it.
fn correct(managed: &ManagedDevice, correction: Correction) -> bool {
    match correction {
        Correction::Charge(bytes) => !matches!(managed.memory.reserve(bytes), Outcome::Refused),
        Correction::Release(bytes) => {
            managed.memory.release(bytes);
            true
        }
    }
}

/// Memory of a pool was freed, so its size may change when the GPU has reached the free. The driver gives it back at a wait, after which the
/// charge is corrected.
pub(super) fn note_free() {
    FREED.store(true, Relaxed);
}

/// A wait of the program has ended: the GPU may have reached frees, and graphs may have taken memory.
#[inline]
pub(super) fn after_wait() {
    let take = |flag: &AtomicBool| flag.load(Relaxed) && flag.swap(false, Relaxed);
    if take(&FREED) || deferred_release::any() {
        guarded((), || _ = refresh());
    } else if take(&LAUNCHED) {
        guarded((), || _ = correct_all(|id| matches!(id, PoolId::Graphs(_))));
    }
}

/// Corrects the charges of all pools, and releases charges of which the GPU has reached the frees. `false` if there are none. Corrections and
/// releases of other threads, which may be under way, have been made when it returns.
pub(super) fn refresh() -> bool {
    if fork::has_forked() {
        return false;
    }
    deferred_release::release_reached() | correct_all(|_| true)
}

/// Corrects the charges of some pools. `false` if no pool was ever charged.
pub(super) fn correct_all(which: impl Fn(PoolId) -> bool) -> bool {
    if !IN_USE.load(Relaxed) || fork::has_forked() {
        return false;
    }
    let pools = lock(&POOLS).of_devices();
    for (id, device) in pools.into_iter().filter(|(id, _)| which(*id)) {
        if let Some(managed) = process::device_in_use(device) {
            let _granted = settle_by_size(managed, id, 0);
        }
    }
    true
}

/// Takes a pool out of the table before a call that ends it: from here on no thread asks the driver for its size. Returns its device and
/// its charge.
pub(super) fn take(id: PoolId) -> Option<(u32, u64)> {
    loop {
        {
            let mut pools = lock(&POOLS);
            if !pools.is_queried(id) {
                return pools.remove(id);
            }
        }
        std::thread::sleep(QUERY_CHECK);
    }
}

/// Has the driver give back the memory that the device's pools and graphs keep and do not use, as it does itself when the GPU has no memory
/// left. `false` if no pool was ever charged.
pub(super) fn trim_unused(managed: &ManagedDevice) -> bool {
    if !IN_USE.load(Relaxed) || fork::has_forked() {
        return false;
    }
    let pools = lock(&POOLS).of_devices();
    pools.into_iter().filter(|(_, device)| *device == managed.ordinal).for_each(|(id, _)| trim(id));
    refresh()
}

/// Has the driver give back the memory that a pool, or a device for graphs, keeps and does not use.
pub(super) fn trim(id: PoolId) {
    // The program has not called these functions, and they must not end its captures.
    if CAPTURES.any() {
        return;
    }
    let Some(query) = lock(&POOLS).begin_query(id) else { return };
    let table = real::table();
    let _trimmed = hold_kernel::may_wait(|| {
        let status = gpu::with_relaxed_capture_mode(|| match id {
            PoolId::Pool(pool) => {
                // SAFETY: a pool that is being queried is not destroyed.
                table.cuMemPoolTrimTo.map(|trim| unsafe { trim(gpu::pointer(pool), 0) })
            }
            PoolId::Graphs(device) => {
                // SAFETY: the device exists, because it was used.
                table.cuDeviceGraphMemTrim.map(|trim| unsafe { trim(device.cast_signed()) })
            }
        });
        status.unwrap_or(CUresult::ERROR_NOT_SUPPORTED)
    });
    let _is_current = lock(&POOLS).end_query(query);
}

/// Bytes that the driver has for a pool or for graphs, freed ones included.
fn reserved_bytes(id: PoolId) -> Option<u64> {
    // The program has not asked.
    gpu::beside_captures(|| match id {
        PoolId::Pool(pool) => gpu::pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
        PoolId::Graphs(device) => gpu::graph_bytes(device.cast_signed()),
    })
}

/// Bytes of a pool that the program has freed, while the program uses the pool.
pub(super) fn unused_bytes(id: PoolId) -> u64 {
    let PoolId::Pool(pool) = id else { return 0 };
    let [reserved, used] = [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT]
        .map(|attribute| gpu::beside_captures(|| gpu::pool_bytes(pool, attribute)).unwrap_or(0));
    reserved.saturating_sub(used)
}
