//! Queries of the memory size: the limit is the total, and the unused part of it is free.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::memory::visible_memory;
use sluice_hook_core::outcome::Bypass;

use crate::guard::guarded;
use crate::process::{self, ManagedDevice};

/// `cuMemGetInfo`.
///
/// # Safety
/// If `real` succeeds, it has written `free` and `total`.
pub(crate) unsafe fn memory_info<S: Copy + TryFrom<u64> + TryInto<u64>>(
    (free, total): (*mut S, *mut S),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS {
        guarded((), || _ = super::pool::refresh());
        // SAFETY: the driver has succeeded, so it has written both.
        unsafe {
            let seen = limited(process::current_device, number(*free), number(*total));
            (*free, *total) = (seen.0.try_into().unwrap_or(*free), seen.1.try_into().unwrap_or(*total));
        }
    }
    result
}

/// `cuDeviceTotalMem`.
///
/// # Safety
/// If `real` succeeds, it has written `bytes`.
pub(crate) unsafe fn device_total<S: Copy + TryFrom<u64> + TryInto<u64>>(
    bytes: *mut S,
    device: CUdevice,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has succeeded, so it has written the size.
        unsafe {
            let (_, total) = limited(|| process::device_of(device), 0, number(*bytes));
            *bytes = total.try_into().unwrap_or(*bytes);
        }
    }
    result
}

fn number(size: impl TryInto<u64>) -> u64 {
    size.try_into().unwrap_or(u64::MAX)
}

/// (free, total) under the limit; the driver's values if no limit is known.
fn limited(
    managed: impl FnOnce() -> Result<&'static ManagedDevice, Bypass>,
    physical_free: u64,
    physical_total: u64,
) -> (u64, u64) {
    guarded((physical_free, physical_total), || {
        let usage = managed().and_then(|managed| managed.memory.usage().ok_or(Bypass::ManagerGone));
        match usage {
            Ok((used, limit)) => visible_memory(used, limit, physical_free, physical_total),
            Err(reason) => {
                process::count_bypass(reason);
                (physical_free, physical_total)
            }
        }
    })
}
