//! Linear memory (plain, pitched, managed), and arrays, which are charged by their shape.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_hook_core::array_size::ArrayShape;

use super::charge::{AllocationRequest, allocate};
use crate::guard::{guarded, written};
use crate::{real, residency};

/// All drivers so far round the rows of pitched memory up to this. The real pitch is settled after the allocation.
const PITCH_ALIGNMENT: u64 = 512;

/// Allocates memory that belongs to the current context.
///
/// # Safety
/// `pointer` is null or writable. If `real` succeeds, it has written `pointer` unless it is null.
pub(crate) unsafe fn of_context<P: Copy + Into<u64>>(
    pointer: *mut P,
    bytes: u64,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let request = AllocationRequest { bytes, space: HandleSpace::Pointer, in_context: true };
    // SAFETY: null or written: the driver has succeeded.
    allocate(request, None, real, || (unsafe { written(pointer) }.map_or(0, Into::into), bytes), |_| {})
}

/// Allocates linear memory: in chunks that may leave the GPU, if the manager has sent host memory for them, or by the driver.
///
/// # Safety
/// As [`of_context`].
pub(crate) unsafe fn linear<P: Copy + Into<u64>>(
    pointer: *mut P,
    bytes: u64,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    allocate(
        AllocationRequest { bytes, space: HandleSpace::Pointer, in_context: true },
        None,
        // SAFETY: null or writable, as the caller guarantees.
        || unsafe { residency::allocate(pointer, bytes) }.unwrap_or_else(real),
        || {
            // SAFETY: null or written: the allocation has succeeded.
            let address = unsafe { written(pointer) }.map_or(0, Into::into);
            (address, guarded(None, || residency::size_of(address)).unwrap_or(bytes))
        },
        |address| _ = residency::free(address),
    )
}

/// Allocates rows of `width` bytes each, and whatever the driver adds to a row.
///
/// # Safety
/// `pointer` and `pitch` are each null or writable. If `real` succeeds, it has written those that are not null.
pub(crate) unsafe fn pitched<P: Copy + Into<u64>, S: Copy + TryInto<u64>>(
    (pointer, pitch): (*mut P, *mut S),
    (width, rows): (u64, u64),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let expected = width.checked_next_multiple_of(PITCH_ALIGNMENT).unwrap_or(u64::MAX);
    let of_rows = |pitch: u64| pitch.saturating_mul(rows);
    allocate(
        AllocationRequest { bytes: of_rows(expected), space: HandleSpace::Pointer, in_context: true },
        None,
        real,
        || {
            // SAFETY: null or written: the driver has succeeded.
            let (pointer, pitch) = unsafe { (written(pointer), written(pitch)) };
            let pitch = pitch.map_or(expected, |pitch| pitch.try_into().unwrap_or(u64::MAX));
            (pointer.map_or(0, Into::into), of_rows(pitch))
        },
        give_up,
    )
}

/// Frees pitched memory whose real size does not fit into the limit.
fn give_up(pointer: u64) {
    if let Some(free) = real::table().cuMemFree_v2 {
        // SAFETY: the driver has just allocated it, and the program does not have the address yet.
        let _freed = unsafe { free(pointer) };
    }
}

const LAYERED: c_uint = 0x01;
const SPARSE: c_uint = 0x40;
const DEFERRED_MAPPING: c_uint = 0x80;

pub(crate) trait ArrayDescriptor {
    fn shape(&self) -> ArrayShape;
}

impl ArrayDescriptor for CUDA_ARRAY_DESCRIPTOR_v1 {
    fn shape(&self) -> ArrayShape {
        flat(self.Width.into(), self.Height.into(), self.Format, self.NumChannels)
    }
}

impl ArrayDescriptor for CUDA_ARRAY_DESCRIPTOR {
    fn shape(&self) -> ArrayShape {
        flat(self.Width as u64, self.Height as u64, self.Format, self.NumChannels)
    }
}

impl ArrayDescriptor for CUDA_ARRAY3D_DESCRIPTOR_v1 {
    fn shape(&self) -> ArrayShape {
        let flat = flat(self.Width.into(), self.Height.into(), self.Format, self.NumChannels);
        deep(flat, self.Depth.into(), self.Flags)
    }
}

impl ArrayDescriptor for CUDA_ARRAY3D_DESCRIPTOR {
    fn shape(&self) -> ArrayShape {
        let flat = flat(self.Width as u64, self.Height as u64, self.Format, self.NumChannels);
        deep(flat, self.Depth as u64, self.Flags)
    }
}

/// Creates an array.
///
/// # Safety
/// `descriptor` is null or readable, and `handle` null or writable. If `real` succeeds, it has written `handle` unless it is null.
pub(crate) unsafe fn array(
    handle: *mut CUarray,
    descriptor: *const impl ArrayDescriptor,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: as the caller guarantees; the driver refuses null.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| descriptor.shape().bytes());
    // SAFETY: as the caller guarantees.
    unsafe { shaped(handle, HandleSpace::Array, bytes, real) }
}

/// Creates a mipmapped array.
///
/// # Safety
/// As [`array`].
pub(crate) unsafe fn mipmapped_array(
    handle: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: as the caller guarantees; the driver refuses null.
    let shape = unsafe { descriptor.as_ref() }.map(ArrayDescriptor::shape);
    let bytes = shape.map_or(0, |shape| shape.mipmap_bytes(levels));
    // SAFETY: as the caller guarantees.
    unsafe { shaped(handle, HandleSpace::Mipmap, bytes, real) }
}

/// Allocates what is charged by its shape.
///
/// # Safety
/// `handle` is null or writable. If `real` succeeds, it has written `handle` unless it is null.
unsafe fn shaped<T>(
    handle: *mut *mut T,
    space: HandleSpace,
    bytes: u64,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let request = AllocationRequest { bytes, space, in_context: true };
    // SAFETY: null or written: the driver has succeeded.
    let made = || unsafe { written(handle) }.map_or(0, |made| made.addr() as u64);
    allocate(request, None, real, || (made(), bytes), |_| {})
}

fn flat(width: u64, height: u64, format: CUarray_format, channels: c_uint) -> ArrayShape {
    ArrayShape { width, height, depth: 0, format, channels, layered: false, deferred: false }
}

fn deep(shape: ArrayShape, depth: u64, flags: c_uint) -> ArrayShape {
    let deferred = flags & (SPARSE | DEFERRED_MAPPING) != 0;
    ArrayShape { depth, layered: flags & LAYERED != 0, deferred, ..shape }
}
