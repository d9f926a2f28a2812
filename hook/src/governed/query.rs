//! Queries of the memory size: the limit is the total, and the unused part of it is free.

use std::ffi::c_uint;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUdevice;
use sluice_hook_core::memory::visible_memory;
use sluice_hook_core::outcome::Bypass;

use super::guarded;
use crate::process::{self, ManagedDevice};

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemGetInfo_v2(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> CUresult,
    free: *mut usize,
    total: *mut usize,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(free, total) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has succeeded, so it has written both.
        unsafe {
            let seen = limited(process::current_device, *free as u64, *total as u64);
            (*free, *total) = (seen.0.try_into().unwrap_or(*free), seen.1.try_into().unwrap_or(*total));
        }
    }
    result
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemGetInfo(
    real: unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> CUresult,
    free: *mut c_uint,
    total: *mut c_uint,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(free, total) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has succeeded, so it has written both.
        unsafe {
            let seen = limited(process::current_device, u64::from(*free), u64::from(*total));
            (*free, *total) = (seen.0.try_into().unwrap_or(*free), seen.1.try_into().unwrap_or(*total));
        }
    }
    result
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuDeviceTotalMem_v2(
    real: unsafe extern "C" fn(*mut usize, CUdevice) -> CUresult,
    bytes: *mut usize,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(bytes, device) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has succeeded, so it has written the size.
        unsafe {
            let (_, total) = limited(|| process::device_of(device), 0, *bytes as u64);
            *bytes = total.try_into().unwrap_or(*bytes);
        }
    }
    result
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuDeviceTotalMem(
    real: unsafe extern "C" fn(*mut c_uint, CUdevice) -> CUresult,
    bytes: *mut c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(bytes, device) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has succeeded, so it has written the size.
        unsafe {
            let (_, total) = limited(|| process::device_of(device), 0, u64::from(*bytes));
            *bytes = total.try_into().unwrap_or(*bytes);
        }
    }
    result
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
