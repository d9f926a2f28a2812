//! Arrays and mipmapped arrays, charged by their shape.

use std::ffi::c_uint;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_hook_core::array_size::ArrayShape;

use super::charge::{AllocationRequest, allocate};

const LAYERED: c_uint = 0x01;
const SPARSE: c_uint = 0x40;
const DEFERRED_MAPPING: c_uint = 0x80;

/// The descriptor of an array.
pub(crate) trait Descriptor {
    fn shape(&self) -> ArrayShape;
}

impl Descriptor for CUDA_ARRAY_DESCRIPTOR_v1 {
    fn shape(&self) -> ArrayShape {
        flat(self.Width.into(), self.Height.into(), self.Format, self.NumChannels)
    }
}

impl Descriptor for CUDA_ARRAY_DESCRIPTOR {
    fn shape(&self) -> ArrayShape {
        flat(self.Width as u64, self.Height as u64, self.Format, self.NumChannels)
    }
}

impl Descriptor for CUDA_ARRAY3D_DESCRIPTOR_v1 {
    fn shape(&self) -> ArrayShape {
        let flat = flat(self.Width.into(), self.Height.into(), self.Format, self.NumChannels);
        deep(flat, self.Depth.into(), self.Flags)
    }
}

impl Descriptor for CUDA_ARRAY3D_DESCRIPTOR {
    fn shape(&self) -> ArrayShape {
        let flat = flat(self.Width as u64, self.Height as u64, self.Format, self.NumChannels);
        deep(flat, self.Depth as u64, self.Flags)
    }
}

/// Creates an array.
///
/// # Safety
/// `descriptor` is null or readable. If `real` succeeds, it has written `handle`.
pub(crate) unsafe fn create(
    handle: *mut CUarray,
    descriptor: *const impl Descriptor,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: as the caller guarantees; the driver refuses null.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| descriptor.shape().bytes());
    let request = AllocationRequest { bytes, space: HandleSpace::Array, in_context: true };
    // SAFETY: the driver has succeeded, so it has written the handle.
    allocate(request, None, real, || (unsafe { *handle }.addr() as u64, bytes), |_| {})
}

/// Creates a mipmapped array.
///
/// # Safety
/// As [`create`].
pub(crate) unsafe fn create_mipmapped(
    handle: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: as the caller guarantees; the driver refuses null.
    let shape = unsafe { descriptor.as_ref() }.map(Descriptor::shape);
    let bytes = shape.map_or(0, |shape| shape.mipmap_bytes(levels));
    let request = AllocationRequest { bytes, space: HandleSpace::Mipmap, in_context: true };
    // SAFETY: the driver has succeeded, so it has written the handle.
    allocate(request, None, real, || (unsafe { *handle }.addr() as u64, bytes), |_| {})
}

fn flat(width: u64, height: u64, format: CUarray_format, channels: c_uint) -> ArrayShape {
    ArrayShape { width, height, depth: 0, format, channels, layered: false, deferred: false }
}

fn deep(shape: ArrayShape, depth: u64, flags: c_uint) -> ArrayShape {
    let deferred = flags & (SPARSE | DEFERRED_MAPPING) != 0;
    ArrayShape { depth, layered: flags & LAYERED != 0, deferred, ..shape }
}
