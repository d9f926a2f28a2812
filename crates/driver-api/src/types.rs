//! Types of the driver's ABI, with the driver's names and fields. Structs that are passed by value or that this workspace reads have
//! their layout here; all others are opaque behind a pointer.

#![allow(non_camel_case_types, non_snake_case, reason = "the names are the driver's")]

pub use std::ffi::{
    c_char, c_double, c_float, c_int, c_long, c_longlong, c_schar, c_short, c_uchar, c_uint, c_ulong,
    c_ulonglong, c_ushort, c_void,
};

pub use crate::constants::*;
pub use crate::handles::*;
pub use crate::status::CUresult;

/// A host function that a stream calls.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// A callback that a stream calls when all earlier commands are completed.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, user_data: *mut c_void)>;

macro_rules! structs {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "the fields are the driver's")]
        pub struct $name { $(pub $field: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: every field is an integer, an array of integers, a raw pointer or a struct of such: all zeros is valid.
                unsafe { std::mem::zeroed() }
            }
        }
    )*

        /// Name, size and alignment of each struct above.
        #[cfg(test)]
        const STRUCTS: &[(&str, usize, usize)] = &[$((stringify!($name), size_of::<$name>(), align_of::<$name>()),)*];
    };
}

structs! {
    /// Identifier of a device.
    CUuuid { bytes: [u8; 16], }
    /// Handle of memory that another process may open; passed by value.
    CUipcMemHandle { reserved: [u8; 64], }
    /// Handle of an event that another process may open; passed by value.
    CUipcEventHandle { reserved: [u8; 64], }
    /// Location of memory; passed by value.
    CUmemLocation { kind: CUmemLocationType, id: c_int, }
    /// A device, and whether its kernels may read or write mapped memory.
    CUmemAccessDesc { location: CUmemLocation, flags: CUmemAccess_flags, }
    /// Geometry and attributes of a launch.
    CUlaunchConfig {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut CUlaunchAttribute, numAttrs: c_uint,
    }
    /// One attribute of a launch; `value` is a union in C.
    CUlaunchAttribute { id: CUlaunchAttributeID, pad: [u8; 4], value: [u64; 8], }
    /// Properties of the memory that `cuMemCreate` creates. The last four fields are the eight bytes of C's `allocFlags`.
    CUmemAllocationProp {
        kind: CUmemAllocationType, requestedHandleTypes: c_uint, location: CUmemLocation,
        win32HandleMetaData: *mut c_void, compressionType: c_uchar, gpuDirectRDMACapable: c_uchar, usage: c_ushort,
        reserved: [c_uchar; 4],
    }
    /// Properties of the pool that `cuMemPoolCreate` creates.
    CUmemPoolProps {
        allocType: CUmemAllocationType, handleTypes: c_uint, location: CUmemLocation, win32SecurityAttributes: *mut c_void,
        maxSize: usize, usage: c_ushort, gpuDirectRDMACapable: c_uchar, reserved: [c_uchar; 53],
    }
    /// A graph node that allocates memory.
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps, accessDescs: *const CUmemAccessDesc, accessDescCount: usize, bytesize: usize,
        dptr: CUdeviceptr,
    }
    /// A graph node. In C all but the kind is a union, of which `alloc` is the part for allocations.
    CUgraphNodeParams {
        kind: CUgraphNodeType, reserved: [c_int; 3], alloc: CUDA_MEM_ALLOC_NODE_PARAMS, more: [u64; 15],
    }
    /// A copy of two dimensions, as of version 2000.
    CUDA_MEMCPY2D_v1 {
        srcXInBytes: c_uint, srcY: c_uint, srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: CUdeviceptr_v1,
        srcArray: CUarray, srcPitch: c_uint, dstXInBytes: c_uint, dstY: c_uint, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: CUdeviceptr_v1, dstArray: CUarray, dstPitch: c_uint, WidthInBytes: c_uint,
        Height: c_uint,
    }
    /// A copy of two dimensions.
    CUDA_MEMCPY2D {
        srcXInBytes: usize, srcY: usize, srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: CUdeviceptr,
        srcArray: CUarray, srcPitch: usize, dstXInBytes: usize, dstY: usize, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray, dstPitch: usize, WidthInBytes: usize, Height: usize,
    }
    /// A copy of three dimensions.
    CUDA_MEMCPY3D {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: CUmemorytype, srcHost: *const c_void,
        srcDevice: CUdeviceptr, srcArray: CUarray, reserved0: *mut c_void, srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: CUmemorytype, dstHost: *mut c_void,
        dstDevice: CUdeviceptr, dstArray: CUarray, reserved1: *mut c_void, dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }
    /// An array of one or two dimensions, as of version 2000.
    CUDA_ARRAY_DESCRIPTOR_v1 { Width: c_uint, Height: c_uint, Format: CUarray_format, NumChannels: c_uint, }
    /// An array of one or two dimensions; `Height` 0 means one.
    CUDA_ARRAY_DESCRIPTOR { Width: usize, Height: usize, Format: CUarray_format, NumChannels: c_uint, }
    /// An array of up to three dimensions, as of version 2000.
    CUDA_ARRAY3D_DESCRIPTOR_v1 {
        Width: c_uint, Height: c_uint, Depth: c_uint, Format: CUarray_format, NumChannels: c_uint, Flags: c_uint,
    }
    /// An array of up to three dimensions, layers or cube faces.
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: usize, Height: usize, Depth: usize, Format: CUarray_format, NumChannels: c_uint, Flags: c_uint,
    }
    /// One device's part of a launch over several.
    CUDA_LAUNCH_PARAMS {
        function: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void,
    }
    /// The oldest form of device properties.
    CUdevprop {
        maxThreadsPerBlock: c_int, maxThreadsDim: [c_int; 3], maxGridSize: [c_int; 3], sharedMemPerBlock: c_int,
        totalConstantMemory: c_int, SIMDWidth: c_int, memPitch: c_int, regsPerBlock: c_int, clockRate: c_int,
        textureAlign: c_int,
    }
    /// A frame of an EGL stream; passed by value. `frame` is a union of three arrays or three pointers in C.
    CUeglFrame {
        frame: [*mut c_void; 3], width: c_uint, height: c_uint, depth: c_uint, pitch: c_uint, planeCount: c_uint,
        numChannels: c_uint, frameType: c_uint, eglColorFormat: c_uint, cuFormat: CUarray_format,
    }
}

#[cfg(test)]
mod tests;
