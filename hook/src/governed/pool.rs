//! Stream-ordered memory: pools, and the memory of graphs, which the driver takes when a graph is launched.
//!
//! Both are charged by their reserved size, which the driver reports. The charges follow it at each allocation, at the end of a
//! wait after a free, when a program asks how much memory it has, and before an allocation is refused.

mod excess;
mod lifetime;

use std::sync::atomic::Ordering::Relaxed;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{Allocation, HandleSpace};
use sluice_hook_core::lock;
use sluice_hook_core::outcome::{Bypass, Outcome};
use sluice_hook_core::pools::{PoolId, PoolLocation};

use super::charge;
pub(super) use super::pool_charges::refresh;
use super::pool_charges::{POOLS, note_free, note_graph_memory, note_pools, settle_by_size, unused_bytes};
use crate::captures::CAPTURES;
use crate::counters;
use crate::counters::COUNTERS;
use crate::guard::{guarded, written};
use crate::process::{self, ManagedDevice};
use crate::settings;
use crate::thread_state;
use crate::{gpu, preempt, real};
use excess::OnStream;
pub(crate) use lifetime::{add_node, destroy, locate, trim};

/// An attempt to allocate from a pool.
enum Attempt {
    /// The result for the program.
    Done(CUresult),
    /// The driver has made the pool larger than the limit allows. The memory was freed again.
    Exceeded,
}

/// Allocates from a pool, or from the current pool of the stream's device.
///
/// # Safety
/// `pointer` is null or writable. If `real` succeeds, it has written `pointer` unless it is null.
pub(crate) unsafe fn allocate(
    pointer: *mut CUdeviceptr,
    bytes: u64,
    stream: OnStream,
    pool: Option<CUmemoryPool>,
    real: impl Fn() -> CUresult,
) -> CUresult {
    thread_state::with_thread(|thread| {
        let Some(_inside) = thread.enter() else {
            counters::count_bypass(Bypass::Nested);
            return real();
        };
        let Some((managed, id)) = guarded(None, || charged_pool(bytes, stream, pool)) else {
            return preempt::give_gpu_back_for(real);
        };
        let attempt = |reserve: fn(&'static ManagedDevice, PoolId, u64) -> Option<u64>| {
            let Some(prepaid) = guarded(Some(0), || reserve(managed, id, bytes)) else {
                return Attempt::Done(CUresult::ERROR_OUT_OF_MEMORY);
            };
            let result = preempt::give_gpu_back_for(&real);
            if result != CUresult::SUCCESS {
                guarded((), || cancel(managed, id, prepaid));
                return Attempt::Done(result);
            }
            // SAFETY: null or written: the driver has succeeded.
            let address = unsafe { written(pointer) }.unwrap_or(0);
            if guarded(true, || settle(managed, id, prepaid, address, bytes)) {
                return Attempt::Done(result);
            }
            free_again(address, stream);
            Attempt::Exceeded
        };
        // The second attempt reserves all of its bytes: the first one relied on freed memory, which the trim has given back.
        for reserve in [reserve_or_reuse, reserve_all] {
            match attempt(reserve) {
                Attempt::Done(result) => return result,
                Attempt::Exceeded if guarded(false, || excess::give_back(managed, id, stream)) => {}
                Attempt::Exceeded => break,
            }
        }
        COUNTERS.refused.fetch_add(1, Relaxed);
        CUresult::ERROR_OUT_OF_MEMORY
    })
}

/// The pool that an allocation is charged to, and its device. `None`: the allocation is not charged.
fn charged_pool(
    bytes: u64,
    stream: OnStream,
    pool: Option<CUmemoryPool>,
) -> Option<(&'static ManagedDevice, PoolId)> {
    if bytes == 0 {
        return None;
    }
    let managed =
        |device| process::device_of(device).inspect_err(|reason| counters::count_bypass(*reason)).ok();
    if let Err(reason) = settings::check_governed() {
        counters::count_bypass(reason);
        return None;
    }
    if is_capturing(stream) {
        // The allocation becomes a node. The driver takes the memory at the graph's launch.
        note_graph_memory(gpu::stream_device(stream.0)?);
        return None;
    }
    let pool = match pool {
        Some(pool) => pool,
        None => gpu::current_pool(gpu::stream_device(stream.0)?)?,
    };
    let id = PoolId::Pool(pool.addr() as u64);
    let known = lock(&POOLS).location(id);
    let location = known.or_else(|| {
        // Created pools are known, so it is the default pool of a device.
        let default = (0..gpu::device_count()?).find(|device| gpu::default_pool(*device) == Some(pool));
        let device = default.or_else(|| gpu::stream_device(stream.0))?;
        let location = PoolLocation::Device(u32::try_from(device).ok()?);
        lock(&POOLS).add(id, location);
        Some(location)
    })?;
    match location {
        PoolLocation::Device(device) => Some((managed(CUdevice::try_from(device).ok()?)?, id)),
        PoolLocation::Host => None,
    }
}

/// Bytes to reserve before the driver is called: 0 if the pool has as much memory that may be used again, for which it is charged already.
/// `None`: refused.
///
/// The driver decides whether it uses that memory: it does so in the stream that has freed it. It may make the pool larger instead, which
/// [`settle`] finds. No further allocation relies on such memory until the pool is within the limit again.
fn reserve_or_reuse(managed: &'static ManagedDevice, id: PoolId, bytes: u64) -> Option<u64> {
    managed.track();
    note_pools();
    let reuses = !lock(&POOLS).is_in_excess(id) && unused_bytes(id) >= bytes;
    if reuses { Some(0) } else { reserve_all(managed, id, bytes) }
}

/// Reserves `bytes`, and returns them. `None`: refused.
fn reserve_all(managed: &'static ManagedDevice, id: PoolId, bytes: u64) -> Option<u64> {
    begin(id, bytes, charge::reserve_or_trim(managed, bytes))
}

fn begin(id: PoolId, bytes: u64, outcome: Outcome<()>) -> Option<u64> {
    match outcome {
        Outcome::Governed(()) => {}
        Outcome::Bypassed(reason) => counters::count_bypass(reason),
        Outcome::Refused => {
            COUNTERS.refused.fetch_add(1, Relaxed);
            return None;
        }
    }
    lock(&POOLS).begin(id, bytes);
    Some(bytes)
}

fn cancel(managed: &ManagedDevice, id: PoolId, prepaid: u64) {
    lock(&POOLS).cancel(id, prepaid);
    managed.memory.release(prepaid);
}

/// Records an allocation that was made; `false` if the pool has grown beyond the limit.
fn settle(managed: &ManagedDevice, id: PoolId, prepaid: u64, address: u64, bytes: u64) -> bool {
    let (PoolId::Pool(pool), Some(is_granted)) = (id, settle_by_size(managed, id, prepaid)) else {
        // The driver does not report the size: the allocation is charged by itself.
        lock(&POOLS).cancel(id, prepaid);
        insert(address, Allocation { bytes: prepaid, device: managed.ordinal, context: 0, pool: 0 });
        return true;
    };
    if !is_granted {
        return false;
    }
    insert(address, Allocation { bytes, device: managed.ordinal, context: 0, pool });
    true
}

fn insert(address: u64, allocation: Allocation) {
    let replaced = process::allocations().insert(HandleSpace::Pointer, address, allocation);
    replaced.into_iter().for_each(charge::release);
}

/// Frees memory that the program has not received.
fn free_again(address: CUdeviceptr, (stream, per_thread): OnStream) {
    let table = real::table();
    if let Some(free) = if per_thread { table.cuMemFreeAsync_ptsz } else { table.cuMemFreeAsync } {
        // SAFETY: the driver has just allocated it in this stream, and the program does not have the address yet.
        let _freed = unsafe { free(address, preempt::stands_for(stream, per_thread)) };
        note_free();
    }
}

/// Whether the driver captures the stream.
fn is_capturing((stream, per_thread): OnStream) -> bool {
    if !CAPTURES.any() {
        return false;
    }
    let table = real::table();
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    let ask = if per_thread { table.cuStreamIsCapturing_ptsz } else { table.cuStreamIsCapturing };
    // SAFETY: the program is using the stream, so it is alive; `status` is writable.
    let asked = ask.map(|ask| unsafe { ask(preempt::stands_for(stream, per_thread), &raw mut status) });
    asked == Some(CUresult::SUCCESS) && status != CU_STREAM_CAPTURE_STATUS_NONE
}
