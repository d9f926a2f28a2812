//! Arrays and mipmapped arrays, charged by their shape.

use std::ffi::c_uint;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{AllocationKind, HandleSpace};
use sluice_hook_core::array_size::ArrayShape;

use super::charge::{AllocationRequest, allocate};

const LAYERED: c_uint = 0x01;
const SPARSE: c_uint = 0x40;
const DEFERRED_MAPPING: c_uint = 0x80;

fn array(bytes: u64) -> AllocationRequest {
    AllocationRequest { bytes, space: HandleSpace::Array, kind: AllocationKind::Array }
}

/// Creation functions of a handle from a descriptor: how to read the shape from the descriptor.
macro_rules! created {
    ($($name:ident($descriptor:ty) $shape:expr;)*) => { $(
        /// # Safety
        /// As the driver documents it.
        pub(crate) unsafe fn $name(
            real: unsafe extern "C" fn(*mut CUarray, *const $descriptor) -> CUresult,
            handle: *mut CUarray,
            descriptor: *const $descriptor,
        ) -> CUresult {
            let shape: fn(&$descriptor) -> ArrayShape = $shape;
            // SAFETY: the program passes null, which the driver refuses, or a readable descriptor.
            let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| shape(descriptor).bytes());
            allocate(
                array(bytes),
                None,
                // SAFETY: the program's arguments, unchanged.
                || unsafe { real(handle, descriptor) },
                // SAFETY: the driver has succeeded, so it has written the handle.
                || (unsafe { *handle }.addr() as u64, bytes),
                |_| {},
            )
        }
    )* };
}

created! {
    cuArrayCreate(CUDA_ARRAY_DESCRIPTOR_v1) |d| flat(d.Width.into(), d.Height.into(), d.Format, d.NumChannels);
    cuArrayCreate_v2(CUDA_ARRAY_DESCRIPTOR) |d| flat(d.Width as u64, d.Height as u64, d.Format, d.NumChannels);
    cuArray3DCreate(CUDA_ARRAY3D_DESCRIPTOR_v1) |d| ArrayShape {
        depth: d.Depth.into(),
        ..deep(flat(d.Width.into(), d.Height.into(), d.Format, d.NumChannels), d.Flags)
    };
    cuArray3DCreate_v2(CUDA_ARRAY3D_DESCRIPTOR) |d| solid(d);
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuMipmappedArrayCreate(
    real: unsafe extern "C" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> CUresult,
    handle: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> CUresult {
    // SAFETY: the program passes null, which the driver refuses, or a readable descriptor.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| solid(descriptor).mipmap_bytes(levels));
    allocate(
        AllocationRequest { space: HandleSpace::Mipmap, ..array(bytes) },
        None,
        // SAFETY: the program's arguments, unchanged.
        || unsafe { real(handle, descriptor, levels) },
        // SAFETY: the driver has succeeded, so it has written the handle.
        || (unsafe { *handle }.addr() as u64, bytes),
        |_| {},
    )
}

fn flat(width: u64, height: u64, format: CUarray_format, channels: c_uint) -> ArrayShape {
    ArrayShape { width, height, depth: 0, format, channels, layered: false, deferred: false }
}

fn deep(shape: ArrayShape, flags: c_uint) -> ArrayShape {
    ArrayShape { layered: flags & LAYERED != 0, deferred: flags & (SPARSE | DEFERRED_MAPPING) != 0, ..shape }
}

fn solid(d: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayShape {
    ArrayShape {
        depth: d.Depth as u64,
        ..deep(flat(d.Width as u64, d.Height as u64, d.Format, d.NumChannels), d.Flags)
    }
}
