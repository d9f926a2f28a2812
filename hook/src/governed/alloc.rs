//! Linear memory: plain, pitched, managed, stream-ordered.

use std::ffi::c_uint;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{AllocationKind, HandleSpace};

use super::charge::{AllocationRequest, allocate};
#[allow(unused_imports, reason = "found by type")]
use crate::preempt::{Argument, PlainArgument};
use crate::real;

pub(crate) use super::arrays::{
    cuArray3DCreate, cuArray3DCreate_v2, cuArrayCreate, cuArrayCreate_v2, cuMipmappedArrayCreate,
};
pub(crate) use super::physical::cuMemCreate;

/// All drivers so far round the rows of pitched memory up to this. The real pitch is settled after the allocation.
const PITCH_ALIGNMENT: u64 = 512;

fn linear(bytes: u64, kind: AllocationKind) -> AllocationRequest {
    AllocationRequest { bytes, space: HandleSpace::Pointer, kind }
}

/// Functions with the address first and the size second: their names, the address type, and the kind of allocation.
macro_rules! sized {
    (@own $name:ident) => { stringify!($name).ends_with("_ptsz") };
    ($($name:ident($address:ty, $size:ty $(, $argument:ident: $kind:ty)*) $backing:ident;)*) => { $(
        /// # Safety
        /// As the driver documents it.
        pub(crate) unsafe fn $name(
            real: unsafe extern "C" fn(*mut $address, $size $(, $kind)*) -> CUresult,
            pointer: *mut $address,
            bytes: $size
            $(, $argument: $kind)*
        ) -> CUresult {
            let wanted = bytes as u64;
            allocate(
                linear(wanted, AllocationKind::$backing),
                None,
                // SAFETY: the program's arguments; a stream that replaces another is as valid.
                || unsafe { real(pointer, bytes $(, Argument($argument).at_once(sized!(@own $name)))*) },
                // SAFETY: the driver has succeeded, so it has written the address.
                || (u64::from(unsafe { *pointer }), wanted),
                |_| {},
            )
        }
    )* };
}

sized! {
    cuMemAlloc(CUdeviceptr_v1, c_uint) Linear;
    cuMemAlloc_v2(CUdeviceptr, usize) Linear;
    cuMemAllocManaged(CUdeviceptr, usize, flags: c_uint) Managed;
    cuMemAllocAsync(CUdeviceptr, usize, stream: CUstream) StreamOrdered;
    cuMemAllocAsync_ptsz(CUdeviceptr, usize, stream: CUstream) StreamOrdered;
    cuMemAllocFromPoolAsync(CUdeviceptr, usize, pool: CUmemoryPool, stream: CUstream) StreamOrdered;
    cuMemAllocFromPoolAsync_ptsz(CUdeviceptr, usize, pool: CUmemoryPool, stream: CUstream) StreamOrdered;
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemAllocPitch(
    real: unsafe extern "C" fn(*mut CUdeviceptr_v1, *mut c_uint, c_uint, c_uint, c_uint) -> CUresult,
    pointer: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> CUresult {
    let rows = u64::from(height);
    allocate(
        linear(expected(u64::from(width), rows), AllocationKind::Linear),
        None,
        // SAFETY: the program's arguments, unchanged.
        || unsafe { real(pointer, pitch, width, height, element) },
        // SAFETY: the driver has succeeded, so it has written address and pitch.
        || unsafe { (u64::from(*pointer), u64::from(*pitch).saturating_mul(rows)) },
        give_up,
    )
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMemAllocPitch_v2(
    real: unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> CUresult,
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let rows = height as u64;
    allocate(
        linear(expected(width as u64, rows), AllocationKind::Linear),
        None,
        // SAFETY: the program's arguments, unchanged.
        || unsafe { real(pointer, pitch, width, height, element) },
        // SAFETY: the driver has succeeded, so it has written address and pitch.
        || unsafe { (*pointer, (*pitch as u64).saturating_mul(rows)) },
        give_up,
    )
}

fn expected(width: u64, rows: u64) -> u64 {
    width.checked_next_multiple_of(PITCH_ALIGNMENT).unwrap_or(u64::MAX).saturating_mul(rows)
}

/// Frees pitched memory whose real size does not fit into the limit.
fn give_up(pointer: u64) {
    if let Some(free) = real::table().cuMemFree_v2 {
        // SAFETY: the driver has just allocated it, and the program does not have the address yet.
        let _freed = unsafe { free(pointer) };
    }
}
