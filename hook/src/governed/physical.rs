//! Physical memory (`cuMemCreate`): charged until its last handle is released and its last mapping has ended.

use std::collections::BTreeMap;
use std::ffi::{c_ulonglong, c_void};
use std::sync::{Mutex, PoisonError};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{AllocationKind, HandleSpace};

use super::charge::{self, AllocationRequest, allocate};
use super::guarded;
use crate::process;

type Handle = CUmemGenericAllocationHandle;

const LOCATION_DEVICE: CUmemLocationType = 1;

/// Mapped ranges: start to (end, handle).
static MAPPINGS: Mutex<BTreeMap<u64, (u64, Handle)>> = Mutex::new(BTreeMap::new());

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemCreate(
    real: unsafe extern "C" fn(*mut Handle, usize, *const CUmemAllocationProp, c_ulonglong) -> CUresult,
    handle: *mut Handle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the program passes null, which the driver refuses, or readable properties.
    let location = unsafe { prop.as_ref() }.map(|prop| prop.location);
    // Host memory is not charged to a GPU.
    let device = location.filter(|location| location.kind == LOCATION_DEVICE).map(|location| location.id);
    let bytes = if device.is_some() { size as u64 } else { 0 };
    allocate(
        AllocationRequest { bytes, space: HandleSpace::Physical, kind: AllocationKind::Physical },
        device,
        // SAFETY: the program's arguments, unchanged.
        || unsafe { real(handle, size, prop, flags) },
        // SAFETY: the driver has succeeded, so it has written the handle.
        || (unsafe { *handle }, bytes),
        |_| {},
    )
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemRelease(
    real: unsafe extern "C" fn(Handle) -> CUresult,
    handle: Handle,
) -> CUresult {
    // SAFETY: the program's argument, unchanged.
    charge::free(HandleSpace::Physical, handle, charge::MayWait::No, || unsafe { real(handle) })
}

/// `cuMemRetainAllocationHandle`: one more handle.
///
/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut Handle, *mut c_void) -> CUresult,
    handle: *mut Handle,
    address: *mut c_void,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(handle, address) };
    if result == CUresult::SUCCESS && !process::has_forked() {
        // SAFETY: the driver has succeeded, so it has written the handle.
        let handle = unsafe { *handle };
        guarded((), || process::allocations().retain(HandleSpace::Physical, handle));
    }
    result
}

/// `cuMemMap`: a mapping keeps the memory allocated, as a handle does.
///
/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn map(
    real: unsafe extern "C" fn(CUdeviceptr, usize, usize, Handle, c_ulonglong) -> CUresult,
    pointer: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: Handle,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(pointer, size, offset, handle, flags) };
    if result == CUresult::SUCCESS && !process::has_forked() {
        guarded((), || {
            let mut allocations = process::allocations();
            if allocations.get(HandleSpace::Physical, handle).is_some() {
                allocations.retain(HandleSpace::Physical, handle);
                mappings(|all| all.insert(pointer, (pointer.saturating_add(size as u64), handle)));
            }
        });
    }
    result
}

/// `cuMemUnmap`: ends all mappings in the range.
///
/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn unmap(
    real: unsafe extern "C" fn(CUdeviceptr, usize) -> CUresult,
    pointer: CUdeviceptr,
    size: usize,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(pointer, size) };
    if result == CUresult::SUCCESS && !process::has_forked() {
        guarded((), || {
            let end = pointer.saturating_add(size as u64);
            let gone = mappings(|all| {
                let inside: Vec<_> =
                    all.range(pointer..end).map(|(start, (_, handle))| (*start, *handle)).collect();
                for (start, _) in &inside {
                    all.remove(start);
                }
                inside
            });
            for (_, handle) in gone {
                let freed = process::allocations().release(HandleSpace::Physical, handle);
                freed.into_iter().for_each(charge::release);
            }
        });
    }
    result
}

fn mappings<T>(change: impl FnOnce(&mut BTreeMap<u64, (u64, Handle)>) -> T) -> T {
    change(&mut MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner))
}
