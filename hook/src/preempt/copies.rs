//! Deferral of asynchronous copies.
//!
//! A deferred copy from up to 64 KiB of pageable memory owns the bytes. A copy from more, or to pageable memory, is
//! made by its calling thread in order: the driver would not have returned before, either.

use std::ffi::c_void;
use std::sync::Arc;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::command::{Deferral, STAGED_MAXIMUM, Work};

use super::as_own_call;
use super::submit::{Kept, call};
use crate::real;

/// Whether the driver knows nothing of the memory at an address: then it is pageable host memory.
fn is_pageable(address: u64) -> bool {
    let mut kind: CUmemorytype = 0;
    let asked = real::table().cuPointerGetAttribute.map(|ask| {
        // SAFETY: the attribute is an unsigned int, and `kind` is writable; any address may be asked about.
        as_own_call(|| unsafe { ask((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) })
    });
    asked != Some(CUresult::SUCCESS)
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// A copy of `bytes` whose arguments are values, if none of its `ends` is pageable.
fn by_value(ends: &[u64], bytes: usize, kept: Kept) -> Deferral {
    if ends.iter().copied().any(is_pageable) {
        return Deferral::ByCaller;
    }
    call(Work::transfer(bytes as u64), 0, kept)
}

/// A deferred copy from host memory; owns the present bytes if the memory is pageable.
fn from_host(
    source: *const c_void,
    bytes: usize,
    make: impl Fn(*const c_void, CUstream) -> CUresult + Send + Sync + 'static,
) -> Deferral {
    let work = Work::transfer(bytes as u64);
    let from = address(source);
    if !is_pageable(from) {
        return call(
            work,
            0,
            Box::new(move |stream| {
                make(std::ptr::with_exposed_provenance(usize::try_from(from).unwrap_or(0)), stream)
            }),
        );
    }
    if bytes > STAGED_MAXIMUM || source.is_null() {
        return Deferral::ByCaller;
    }
    // SAFETY: the program has so many bytes copied from there.
    let staged: Arc<[u8]> = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), bytes) }.into();
    call(work, bytes, Box::new(move |stream| make(staged.as_ptr().cast(), stream)))
}

/// The deferral of each copy function. The first argument is the real function.
pub(crate) mod later {
    use std::ffi::{c_uint, c_ulonglong, c_void};

    use sluice_driver_api::CUresult;
    use sluice_driver_api::types::*;
    use sluice_preempt::command::{Deferral, Work};
    use sluice_preempt::ids::Code;

    use super::super::submit::call;
    use super::super::{Argument, PlainArgument, SendableArguments};
    use super::{address, by_value, from_host, is_pageable};

    type Answer = Result<Deferral, Code>;

    macro_rules! by_value {
        ($($name:ident($($argument:ident: $kind:ty),*) [$($end:expr),*] $bytes:expr;)*) => { $(
            pub(crate) fn $name(real: unsafe extern "C" fn($($kind),*) -> CUresult, $($argument: $kind),*) -> Answer {
                let (ends, bytes) = ([$($end),*], $bytes);
                let kept = SendableArguments::new(($($argument,)*));
                Ok(by_value(&ends, bytes as usize, Box::new(move |stream| {
                    let ($($argument,)*) = kept.get();
                    // SAFETY: the program's arguments, which it keeps valid until the copy is done, on the same stream.
                    unsafe { real($(Argument($argument).on(stream)),*) }
                })))
            }
        )* };
    }

    by_value! {
        cuMemcpyDtoHAsync(to: *mut c_void, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream) [address(to)] bytes;
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) [address(to)] bytes;
        cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream) [] bytes;
        cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) [] bytes;
        cuMemcpyAtoHAsync(to: *mut c_void, from: CUarray, at: c_uint, bytes: c_uint, stream: CUstream) [address(to)] bytes;
        cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, at: usize, bytes: usize, stream: CUstream) [address(to)] bytes;
        cuMemcpyHtoAAsync(to: CUarray, at: c_uint, from: *const c_void, bytes: c_uint, stream: CUstream) [address(from)] bytes;
        cuMemcpyHtoAAsync_v2(to: CUarray, at: usize, from: *const c_void, bytes: usize, stream: CUstream) [address(from)] bytes;
        cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) [] bytes;
    }
    pub(crate) use cuMemcpyAtoHAsync_v2 as cuMemcpyAtoHAsync_v2_ptsz;
    pub(crate) use cuMemcpyDtoDAsync_v2 as cuMemcpyDtoDAsync_v2_ptsz;
    pub(crate) use cuMemcpyDtoHAsync_v2 as cuMemcpyDtoHAsync_v2_ptsz;
    pub(crate) use cuMemcpyHtoAAsync_v2 as cuMemcpyHtoAAsync_v2_ptsz;
    pub(crate) use cuMemcpyPeerAsync as cuMemcpyPeerAsync_ptsz;

    pub(crate) fn cuMemcpyHtoDAsync(
        real: unsafe extern "C" fn(CUdeviceptr_v1, *const c_void, c_uint, CUstream) -> CUresult,
        to: CUdeviceptr_v1,
        from: *const c_void,
        bytes: c_uint,
        _: CUstream,
    ) -> Answer {
        // SAFETY: the program's arguments, on the same stream; the source is readable until the call returns.
        let make = move |from, stream| unsafe { real(to, from, bytes, stream) };
        Ok(from_host(from, bytes as usize, make))
    }

    pub(crate) fn cuMemcpyHtoDAsync_v2(
        real: unsafe extern "C" fn(CUdeviceptr, *const c_void, usize, CUstream) -> CUresult,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        _: CUstream,
    ) -> Answer {
        // SAFETY: as above.
        Ok(from_host(from, bytes, move |from, stream| unsafe { real(to, from, bytes, stream) }))
    }
    pub(crate) use cuMemcpyHtoDAsync_v2 as cuMemcpyHtoDAsync_v2_ptsz;

    pub(crate) fn cuMemcpyAsync(
        real: unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        _: CUstream,
    ) -> Answer {
        if is_pageable(to) {
            return Ok(Deferral::ByCaller);
        }
        let source = std::ptr::with_exposed_provenance(usize::try_from(from).unwrap_or(0));
        // SAFETY: as above.
        Ok(from_host(source, bytes, move |from, stream| unsafe { real(to, address(from), bytes, stream) }))
    }
    pub(crate) use cuMemcpyAsync as cuMemcpyAsync_ptsz;

    const HOST: CUmemorytype = 1;
    const UNIFIED: CUmemorytype = 4;

    fn is_pageable_end(kind: CUmemorytype, host: *const c_void, unified: CUdeviceptr) -> bool {
        match kind {
            HOST => is_pageable(address(host)),
            UNIFIED => is_pageable(unified),
            _ => false,
        }
    }

    macro_rules! described {
        ($($name:ident($kind:ty);)*) => { $(
            pub(crate) fn $name(
                real: unsafe extern "C" fn(*const $kind, CUstream) -> CUresult,
                copy: *const $kind,
                _: CUstream,
            ) -> Answer {
                let bytes = Argument(copy).size();
                // SAFETY: the program passes null, which the driver refuses, or a readable description.
                let Some(copy) = (unsafe { copy.as_ref() }) else { return Err(Code::INVALID_VALUE) };
                let pageable = is_pageable_end(copy.srcMemoryType, copy.srcHost, copy.srcDevice)
                    || is_pageable_end(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
                if pageable {
                    return Ok(Deferral::ByCaller);
                }
                // SAFETY: a description is plain numbers and addresses.
                let kept = SendableArguments::new(unsafe { std::ptr::from_ref(copy).read() });
                // SAFETY: as above; the description lives until the call returns.
                let make = move |stream| unsafe { real(&raw const *kept.get_ref(), stream) };
                Ok(call(Work::transfer(bytes), size_of::<$kind>(), Box::new(make)))
            }
        )* };
    }

    described! {
        cuMemcpy2DAsync_v2(CUDA_MEMCPY2D);
        cuMemcpy3DAsync_v2(CUDA_MEMCPY3D);
    }
    pub(crate) use cuMemcpy2DAsync_v2 as cuMemcpy2DAsync_v2_ptsz;
    pub(crate) use cuMemcpy3DAsync_v2 as cuMemcpy3DAsync_v2_ptsz;

    macro_rules! in_person {
        ($($name:ident($($kind:ty),*);)*) => { $(
            #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
            pub(crate) fn $name(_: unsafe extern "C" fn($($kind),*) -> CUresult, $(_: $kind),*) -> Answer {
                Ok(Deferral::ByCaller)
            }
        )* };
    }

    in_person! {
        cuMemcpy2DAsync(*const CUDA_MEMCPY2D_v1, CUstream);
        cuMemcpy3DAsync(*const CUDA_MEMCPY3D_v1, CUstream);
        cuMemcpy3DPeerAsync(*const CUDA_MEMCPY3D_PEER, CUstream);
        cuMemcpy3DBatchAsync(usize, *mut CUDA_MEMCPY3D_BATCH_OP, *mut usize, c_ulonglong, CUstream);
        cuMemcpy3DBatchAsync_v2(usize, *mut CUDA_MEMCPY3D_BATCH_OP, c_ulonglong, CUstream);
        cuMemcpy3DWithAttributesAsync(*mut CUDA_MEMCPY3D_BATCH_OP, c_ulonglong, CUstream);
        cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, usize, *mut CUmemcpyAttributes, CUstream);
        cuMemcpyBatchAsync(*mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, *mut usize, CUstream);
        cuMemcpyBatchAsync_v2(*mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, CUstream);
    }
    pub(crate) use cuMemcpy3DBatchAsync as cuMemcpy3DBatchAsync_ptsz;
    pub(crate) use cuMemcpy3DBatchAsync_v2 as cuMemcpy3DBatchAsync_v2_ptsz;
    pub(crate) use cuMemcpy3DPeerAsync as cuMemcpy3DPeerAsync_ptsz;
    pub(crate) use cuMemcpy3DWithAttributesAsync as cuMemcpy3DWithAttributesAsync_ptsz;
    pub(crate) use cuMemcpyBatchAsync as cuMemcpyBatchAsync_ptsz;
    pub(crate) use cuMemcpyBatchAsync_v2 as cuMemcpyBatchAsync_v2_ptsz;
    pub(crate) use cuMemcpyWithAttributesAsync as cuMemcpyWithAttributesAsync_ptsz;
}
