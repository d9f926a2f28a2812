//! Queries of the memory size: the limit is the total, and the unused part of it is free.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::memory::visible_memory;
use sluice_hook_core::outcome::Bypass;

use crate::counters;
use crate::guard::guarded;
use crate::host_memory;
use crate::process::{self, ManagedDevice};

/// `cuMemGetInfo`. Programs that need one of the two numbers pass null for the other, and the driver accepts that (H200, driver 580).
///
/// # Safety
/// `free` and `total` are each null or writable. If `real` succeeds, it has written those that are not null.
pub(crate) unsafe fn memory_info<S: Copy + TryFrom<u64> + TryInto<u64>>(
    (free, total): (*mut S, *mut S),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS {
        guarded((), || _ = super::pool::refresh());
        // SAFETY: null or written: the driver has succeeded.
        let (free, total) = unsafe { (free.as_mut(), total.as_mut()) };
        // A number that the driver was not asked for is unknown: at most the limit.
        let physical = |asked: &Option<&mut S>| asked.as_ref().map_or(u64::MAX, |size| number(**size));
        let usage = |managed: &ManagedDevice| managed.memory.usage_with_context();
        let (seen_free, seen_total) =
            limited(process::current_device, usage, physical(&free), physical(&total));
        show(free, seen_free);
        show(total, seen_total);
    }
    result
}

/// `cuDeviceTotalMem`.
///
/// # Safety
/// `bytes` is null or writable. If `real` succeeds, it has written `bytes` unless it is null.
pub(crate) unsafe fn device_total<S: Copy + TryFrom<u64> + TryInto<u64>>(
    bytes: *mut S,
    device: CUdevice,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS {
        // SAFETY: null or written: the driver has succeeded.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            // The total does not depend on the context, which the process may not have.
            let usage = |managed: &ManagedDevice| managed.memory.usage();
            let (_, total) = limited(|| process::device_of(device), usage, 0, number(*bytes));
            show(Some(bytes), total);
        }
    }
    result
}

/// Replaces a number of the driver, if the program has asked for it.
fn show<S: TryFrom<u64>>(shown: Option<&mut S>, seen: u64) {
    if let (Some(shown), Ok(seen)) = (shown, seen.try_into()) {
        *shown = seen;
    }
}

fn number(size: impl TryInto<u64>) -> u64 {
    size.try_into().unwrap_or(u64::MAX)
}

/// (free, total) under the limit; the driver's values if no limit is known.
fn limited(
    managed: impl FnOnce() -> Result<&'static ManagedDevice, Bypass>,
    usage: impl FnOnce(&ManagedDevice) -> Option<(u64, u64)>,
    physical_free: u64,
    physical_total: u64,
) -> (u64, u64) {
    guarded((physical_free, physical_total), || {
        let usage = managed().and_then(|managed| usage(managed).ok_or(Bypass::ManagerGone));
        match usage {
            // What others have on the GPU leaves it for an allocation of this process.
            Ok((used, limit)) if host_memory::bytes() > 0 => {
                visible_memory(used, limit, physical_total, physical_total)
            }
            Ok((used, limit)) => visible_memory(used, limit, physical_free, physical_total),
            Err(reason) => {
                counters::count_bypass(reason);
                (physical_free, physical_total)
            }
        }
    })
}
