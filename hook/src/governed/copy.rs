//! Asynchronous copies. The first copy into GPU memory after a pause is the input of a request.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;

use crate::hold_kernel;

/// Calls `real`. Before that, a copy of input may begin a request and its hold kernel.
#[inline]
pub(crate) fn call(
    (stream, per_thread): (CUstream, bool),
    is_input: impl FnOnce() -> bool,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    hold_kernel::before_copy(is_input);
    super::work::call(stream, per_thread, real)
}

/// Whether a copy goes from the host to the GPU. Called only if that would begin a request.
pub(crate) mod is_input {
    use std::ffi::{c_uint, c_ulonglong, c_void};

    use sluice_driver_api::CUresult;
    use sluice_driver_api::types::*;

    use crate::real;

    const HOST: CUmemorytype = 1;
    const DEVICE: CUmemorytype = 2;
    const UNIFIED: CUmemorytype = 4;

    macro_rules! always {
        ($answer:literal $($name:ident($($kind:ty),*);)*) => { $(
            pub(crate) fn $name($(_: $kind),*) -> bool {
                $answer
            }
        )* };
    }

    always! { true
        cuMemcpyHtoDAsync(CUdeviceptr_v1, *const c_void, c_uint, CUstream);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyHtoAAsync(CUarray, c_uint, *const c_void, c_uint, CUstream);
        cuMemcpyHtoAAsync_v2(CUarray, usize, *const c_void, usize, CUstream);
    }
    pub(crate) use cuMemcpyHtoAAsync_v2 as cuMemcpyHtoAAsync_v2_ptsz;
    pub(crate) use cuMemcpyHtoDAsync_v2 as cuMemcpyHtoDAsync_v2_ptsz;

    always! { false
        cuMemcpyDtoHAsync(*mut c_void, CUdeviceptr_v1, c_uint, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync(CUdeviceptr_v1, CUdeviceptr_v1, c_uint, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpyAtoHAsync(*mut c_void, CUarray, c_uint, c_uint, CUstream);
        cuMemcpyAtoHAsync_v2(*mut c_void, CUarray, usize, usize, CUstream);
        cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        cuMemcpy3DPeerAsync(*const CUDA_MEMCPY3D_PEER, CUstream);
        cuMemcpy2DAsync(*const CUDA_MEMCPY2D_v1, CUstream);
        cuMemcpy3DAsync(*const CUDA_MEMCPY3D_v1, CUstream);
        cuMemcpy3DBatchAsync(usize, *mut CUDA_MEMCPY3D_BATCH_OP, *mut usize, c_ulonglong, CUstream);
        cuMemcpy3DBatchAsync_v2(usize, *mut CUDA_MEMCPY3D_BATCH_OP, c_ulonglong, CUstream);
        cuMemcpy3DWithAttributesAsync(*mut CUDA_MEMCPY3D_BATCH_OP, c_ulonglong, CUstream);
    }
    pub(crate) use cuMemcpy3DBatchAsync as cuMemcpy3DBatchAsync_ptsz;
    pub(crate) use cuMemcpy3DBatchAsync_v2 as cuMemcpy3DBatchAsync_v2_ptsz;
    pub(crate) use cuMemcpy3DPeerAsync as cuMemcpy3DPeerAsync_ptsz;
    pub(crate) use cuMemcpy3DWithAttributesAsync as cuMemcpy3DWithAttributesAsync_ptsz;
    pub(crate) use cuMemcpyAtoHAsync_v2 as cuMemcpyAtoHAsync_v2_ptsz;
    pub(crate) use cuMemcpyDtoDAsync_v2 as cuMemcpyDtoDAsync_v2_ptsz;
    pub(crate) use cuMemcpyDtoHAsync_v2 as cuMemcpyDtoHAsync_v2_ptsz;
    pub(crate) use cuMemcpyPeerAsync as cuMemcpyPeerAsync_ptsz;

    pub(crate) fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, _: usize, _: CUstream) -> bool {
        is_on_host(from) && !is_on_host(to)
    }
    pub(crate) use cuMemcpyAsync as cuMemcpyAsync_ptsz;

    pub(crate) fn cuMemcpyWithAttributesAsync(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        _: *mut CUmemcpyAttributes,
        stream: CUstream,
    ) -> bool {
        cuMemcpyAsync(to, from, bytes, stream)
    }
    pub(crate) use cuMemcpyWithAttributesAsync as cuMemcpyWithAttributesAsync_ptsz;

    #[expect(clippy::too_many_arguments, reason = "the driver's signature")]
    pub(crate) fn cuMemcpyBatchAsync_v2(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        _: *mut CUmemcpyAttributes,
        _: *mut usize,
        _: usize,
        stream: CUstream,
    ) -> bool {
        if count == 0 || to.is_null() || from.is_null() || sizes.is_null() {
            return false;
        }
        // SAFETY: the program passes `count` readable entries in each.
        unsafe { cuMemcpyAsync(*to, *from, *sizes, stream) }
    }
    pub(crate) use cuMemcpyBatchAsync_v2 as cuMemcpyBatchAsync_v2_ptsz;

    #[expect(clippy::too_many_arguments, reason = "the driver's signature")]
    pub(crate) fn cuMemcpyBatchAsync(
        to: *mut CUdeviceptr,
        from: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attributes: *mut CUmemcpyAttributes,
        indices: *mut usize,
        attributes_count: usize,
        _: *mut usize,
        stream: CUstream,
    ) -> bool {
        cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, indices, attributes_count, stream)
    }
    pub(crate) use cuMemcpyBatchAsync as cuMemcpyBatchAsync_ptsz;

    pub(crate) fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, _: CUstream) -> bool {
        // SAFETY: the program passes null, which the driver refuses, or a readable description.
        unsafe { copy.as_ref() }.is_some_and(|copy| {
            is_from_host(copy.srcMemoryType, copy.srcDevice)
                && !is_from_host(copy.dstMemoryType, copy.dstDevice)
        })
    }
    pub(crate) use cuMemcpy2DAsync_v2 as cuMemcpy2DAsync_v2_ptsz;

    pub(crate) fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, _: CUstream) -> bool {
        // SAFETY: the program passes null, which the driver refuses, or a readable description.
        unsafe { copy.as_ref() }.is_some_and(|copy| {
            is_from_host(copy.srcMemoryType, copy.srcDevice)
                && !is_from_host(copy.dstMemoryType, copy.dstDevice)
        })
    }
    pub(crate) use cuMemcpy3DAsync_v2 as cuMemcpy3DAsync_v2_ptsz;

    fn is_from_host(kind: CUmemorytype, unified: CUdeviceptr) -> bool {
        kind == HOST || kind == UNIFIED && is_on_host(unified)
    }

    /// Whether a unified address belongs to the host. The driver does not know host memory that it did not pin.
    fn is_on_host(address: CUdeviceptr) -> bool {
        let mut kind: CUmemorytype = 0;
        let ask = real::table().cuPointerGetAttribute;
        // SAFETY: the attribute is an unsigned int, and `kind` is writable; any address may be queried.
        let asked =
            ask.map(|ask| unsafe { ask((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) });
        !(asked == Some(CUresult::SUCCESS) && kind == DEVICE)
    }
}
