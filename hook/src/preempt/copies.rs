//! Deferral of asynchronous copies.
//!
//! A deferred copy from up to 64 KiB of pageable memory owns the bytes. A copy from more, or to pageable memory, is
//! made by its calling thread in order: the driver would not have returned before, either.

use std::ffi::c_void;
use std::sync::Arc;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::command::{Deferral, STAGED_MAXIMUM, Work};

use super::own_calls::as_own_call;
use super::submit::{Kept, call};
use crate::gpu::memory_type;
use crate::gpu::pointer;

/// The two ends of a described copy: the kind of memory, a host address and a unified address.
pub(super) type Ends = [(CUmemorytype, *const c_void, CUdeviceptr); 2];

/// Whether the driver knows nothing of the memory at an address: then it is pageable host memory.
fn is_pageable(address: u64) -> bool {
    as_own_call(|| memory_type(address)).is_none()
}

pub(crate) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// A copy whose arguments are values, if none of its host addresses is pageable.
pub(crate) fn by_value(host_addresses: &[Option<u64>], work: Work, kept: Kept) -> Deferral {
    if host_addresses.iter().flatten().any(|address| is_pageable(*address)) {
        return Deferral::ByCaller;
    }
    call(work, 0, kept)
}

/// A copy of `bytes` bytes by a description of `owned` bytes, if none of its ends is pageable.
pub(super) fn described(ends: Ends, bytes: u64, owned: usize, kept: Kept) -> Deferral {
    let is_pageable_end = |(kind, host, unified): (CUmemorytype, *const c_void, CUdeviceptr)| match kind {
        CU_MEMORYTYPE_HOST => is_pageable(address(host)),
        CU_MEMORYTYPE_UNIFIED => is_pageable(unified),
        _ => false,
    };
    if ends.into_iter().any(is_pageable_end) {
        return Deferral::ByCaller;
    }
    call(Work::transfer(bytes), owned, kept)
}

/// A copy between unified addresses.
pub(crate) fn unified(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    make: impl Fn(CUdeviceptr, CUstream) -> CUresult + Send + Sync + 'static,
) -> Deferral {
    if is_pageable(to) {
        return Deferral::ByCaller;
    }
    from_host(pointer::<c_void>(from), bytes, move |from, stream| make(address(from), stream))
}

/// A copy from host memory; owns the present bytes if the memory is pageable.
pub(crate) fn from_host(
    source: *const c_void,
    bytes: usize,
    make: impl Fn(*const c_void, CUstream) -> CUresult + Send + Sync + 'static,
) -> Deferral {
    let work = Work::transfer(bytes as u64);
    let from = address(source);
    if !is_pageable(from) {
        return call(work, 0, Box::new(move |stream| make(pointer::<c_void>(from), stream)));
    }
    if bytes > STAGED_MAXIMUM || source.is_null() {
        return Deferral::ByCaller;
    }
    // SAFETY: the program has so many bytes copied from there.
    let staged: Arc<[u8]> = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), bytes) }.into();
    call(work, bytes, Box::new(move |stream| make(staged.as_ptr().cast(), stream)))
}
