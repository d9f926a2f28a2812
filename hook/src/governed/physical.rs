//! Physical memory (`cuMemCreate`): charged until its last handle is released and its last mapping has ended.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_hook_core::lock;

use super::charge::{self, AllocationRequest, allocate};
use crate::fork;
use crate::guard::{guarded, written};
use crate::process;

type Handle = CUmemGenericAllocationHandle;

/// Mapped ranges: start to (end, handle).
static MAPPINGS: Mutex<BTreeMap<u64, (u64, Handle)>> = Mutex::new(BTreeMap::new());

/// Creates memory; on the host it is not charged.
///
/// # Safety
/// `properties` is null or readable, and `handle` null or writable. If `real` succeeds, it has written `handle` unless it is null.
pub(crate) unsafe fn create(
    handle: *mut Handle,
    size: usize,
    properties: *const CUmemAllocationProp,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: as the caller guarantees; the driver refuses null.
    let location = unsafe { properties.as_ref() }.map(|properties| properties.location);
    let device =
        location.filter(|location| location.kind == CU_MEM_LOCATION_TYPE_DEVICE).map(|location| location.id);
    let bytes = if device.is_some() { size as u64 } else { 0 };
    let request = AllocationRequest { bytes, space: HandleSpace::Physical, in_context: false };
    // SAFETY: null or written: the driver has succeeded.
    allocate(request, device, real, || (unsafe { written(handle) }.unwrap_or(0), bytes), |_| {})
}

/// `cuMemRetainAllocationHandle`: one more handle.
///
/// # Safety
/// `handle` is null or writable. If `real` succeeds, it has written `handle` unless it is null.
pub(crate) unsafe fn retain(handle: *mut Handle, real: impl FnOnce() -> CUresult) -> CUresult {
    let retain = || {
        // SAFETY: null or written: the driver has succeeded.
        if let Some(handle) = unsafe { written(handle) } {
            process::allocations().retain(HandleSpace::Physical, handle);
        }
    };
    if_succeeded(real, retain)
}

/// `cuMemMap`: a mapping keeps the memory allocated, as a handle does.
pub(crate) fn map(
    (pointer, size): (u64, usize),
    handle: Handle,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    if_succeeded(real, || {
        let mut allocations = process::allocations();
        if allocations.get(HandleSpace::Physical, handle).is_some() {
            allocations.retain(HandleSpace::Physical, handle);
            mappings(|all| all.insert(pointer, (pointer.saturating_add(size as u64), handle)));
        }
    })
}

/// `cuMemUnmap`: ends all mappings in the range. They are taken first: once the driver has unmapped the range, another thread may map memory
/// there.
pub(crate) fn unmap((pointer, size): (u64, usize), real: impl FnOnce() -> CUresult) -> CUresult {
    if fork::has_forked() {
        return real();
    }
    let taken = guarded(BTreeMap::new(), || {
        mappings(|all| {
            let mut taken = all.split_off(&pointer);
            all.append(&mut taken.split_off(&pointer.saturating_add(size as u64)));
            taken
        })
    });
    let result = real();
    guarded((), || {
        if result != CUresult::SUCCESS {
            mappings(|all| all.extend(taken));
            return;
        }
        for (_, handle) in taken.into_values() {
            let freed = process::allocations().release(HandleSpace::Physical, handle);
            freed.into_iter().for_each(charge::release);
        }
    });
    result
}

fn if_succeeded(real: impl FnOnce() -> CUresult, record: impl FnOnce()) -> CUresult {
    let result = real();
    if result == CUresult::SUCCESS && !fork::has_forked() {
        guarded((), record);
    }
    result
}

fn mappings<T>(change: impl FnOnce(&mut BTreeMap<u64, (u64, Handle)>) -> T) -> T {
    change(&mut lock(&MAPPINGS))
}
