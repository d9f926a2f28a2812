//! Memory and copies.

use super::*;

#[test]
fn pageable_memory_can_be_reused_right_after_an_asynchronous_copy() {
    let test = begin_test();
    let pointer = words(4);
    let on = stream(CU_STREAM_NON_BLOCKING);
    cuCtxSynchronize().unwrap();
    spin(&test, 1_000, on);
    let mut source = [7u64; 4];
    cuMemcpyHtoDAsync_v2(pointer, Ptr::first_of(&mut source).cast(), 32, on).unwrap();
    source = [0; 4];
    let mut back = [1u64; 4];
    cuMemcpyDtoHAsync_v2(Ptr::first_of(&mut back).cast(), pointer, 32, on).unwrap();
    assert_eq!((source, back), ([0; 4], [7; 4]), "a copy to pageable memory is over when the call returns");
}

#[test]
fn pinned_memory_is_read_when_the_stream_reaches_the_copy() {
    let test = begin_test();
    let pointer = words(1);
    let on = stream(CU_STREAM_NON_BLOCKING);
    cuCtxSynchronize().unwrap();
    let mut pinned = std::ptr::null_mut();
    cuMemHostAlloc(Ptr::of(&mut pinned), 8, 0).unwrap();
    spin(&test, 20_000, on);
    cuMemcpyHtoDAsync_v2(pointer, handle(pinned), 8, on).unwrap();
    handle(pinned).cast::<u64>().write(5).unwrap();
    cuStreamSynchronize(on).unwrap();
    assert_eq!(read(pointer, 1), [5]);
    cuMemFreeHost(handle(pinned)).unwrap();
}

#[test]
fn memory_of_every_kind_is_counted_to_the_byte_and_returned() {
    let _test = begin_test();
    let before = row().memory_bytes;
    let (mut a, mut b, mut c, mut d) = (0, 0, 0, 0);
    let mut pitch = 0;
    cuMemAlloc_v2(Ptr::of(&mut a), 1_001).unwrap();
    cuMemAllocManaged(Ptr::of(&mut b), 1_002, 1).unwrap();
    cuMemAllocPitch_v2(Ptr::of(&mut c), Ptr::of(&mut pitch), 100, 10, 4).unwrap();
    cuMemAllocAsync(Ptr::of(&mut d), 1_003, legacy()).unwrap();
    let mut array = std::ptr::null_mut();
    let mut descriptor = CUDA_ARRAY_DESCRIPTOR { Width: 10, Height: 3, Format: 0x20, NumChannels: 4 };
    cuArrayCreate_v2(Ptr::of(&mut array), Ptr::of(&mut descriptor)).unwrap();
    let counted = 1_001 + 1_002 + 512 * 10 + 1_003 + 10 * 3 * 16;
    assert_eq!((pitch, row().memory_bytes - before), (512, counted));
    cuMemFree_v2(a).unwrap();
    assert_eq!(cuMemFree_v2(a), Err(CUresult::ERROR_INVALID_VALUE), "freed twice");
    cuMemFree_v2(b).unwrap();
    cuMemFree_v2(c).unwrap();
    cuMemFreeAsync(d, legacy()).unwrap();
    cuArrayDestroy(handle(array)).unwrap();
    cuCtxSynchronize().unwrap();
    assert_eq!(row().memory_bytes, before);
}

/// A pool that gives nothing back by itself, of which 1000 bytes are freed and 500 are not: (pool, what is not freed).
fn pool_with_freed_memory() -> (CUmemoryPool, CUdeviceptr) {
    const RELEASE_THRESHOLD: CUmemPool_attribute = 4;
    let (mut pool, mut most) = (std::ptr::null_mut(), u64::MAX);
    let location = CUmemLocation { kind: 1, id: 0 };
    let mut props = CUmemPoolProps { allocType: 1, location, ..Default::default() };
    cuMemPoolCreate(Ptr::of(&mut pool), Ptr::of(&mut props)).unwrap();
    cuMemPoolSetAttribute(handle(pool), RELEASE_THRESHOLD, Ptr::of(&mut most).cast()).unwrap();
    let (mut freed, mut kept) = (0, 0);
    cuMemAllocFromPoolAsync(Ptr::of(&mut freed), 1_000, handle(pool), legacy()).unwrap();
    cuMemAllocFromPoolAsync(Ptr::of(&mut kept), 500, handle(pool), legacy()).unwrap();
    cuMemFreeAsync(freed, legacy()).unwrap();
    (pool, kept)
}

/// Makes such a pool, has the stream reach the free, and destroys the pool. All of its memory is counted until then, and none at the end.
fn destroy_pool_once(reached: impl FnOnce(CUmemoryPool)) {
    let before = row().memory_bytes;
    let (pool, kept) = pool_with_freed_memory();
    reached(pool);
    assert_eq!(row().memory_bytes, before + 1_500, "the pool keeps what was freed");
    cuMemPoolDestroy(handle(pool)).unwrap();
    assert_eq!(row().memory_bytes, before + 500);
    cuMemFreeAsync(kept, legacy()).unwrap();
    cuCtxSynchronize().unwrap();
    assert_eq!(row().memory_bytes, before);
}

#[test]
fn destroyed_pool_keeps_no_freed_memory() {
    let _test = begin_test();
    destroy_pool_once(|_| cuCtxSynchronize().unwrap());
}

#[test]
fn destroyed_pool_keeps_no_memory_of_which_only_a_query_has_shown_the_free() {
    let _test = begin_test();
    destroy_pool_once(|pool| {
        while cuStreamQuery(legacy()) == Err(CUresult::ERROR_NOT_READY) {
            std::thread::yield_now();
        }
        // It needs a wait, so it gives back nothing.
        cuMemPoolTrimTo(handle(pool), 0).unwrap();
    });
}

#[test]
fn refused_allocation_uses_no_freed_memory_of_the_pool() {
    const USED: CUmemPool_attribute = 7;
    let _test = begin_test();
    let before = row().memory_bytes;
    let (pool, kept) = pool_with_freed_memory();
    cuCtxSynchronize().unwrap();
    let captured = stream(CU_STREAM_DEFAULT);
    cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let refused = cuMemAllocFromPoolAsync(Ptr::of(&mut 0), 1_000, handle(pool), legacy());
    assert_eq!(refused, Err(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT));
    let ended = cuStreamEndCapture(captured, Ptr::of(&mut std::ptr::null_mut()));
    assert_eq!(ended, Err(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED));
    let mut used = 0u64;
    cuMemPoolGetAttribute(handle(pool), USED, Ptr::of(&mut used).cast()).unwrap();
    cuMemPoolDestroy(handle(pool)).unwrap();
    assert_eq!((used, row().memory_bytes), (500, before + 500));
    cuMemFreeAsync(kept, legacy()).unwrap();
    cuCtxSynchronize().unwrap();
    assert_eq!(row().memory_bytes, before);
}

#[test]
fn full_gpu_refuses_allocation_and_keeps_working() {
    let _test = begin_test();
    let (mut free, mut total) = (0, 0);
    cuMemGetInfo_v2(Ptr::of(&mut free), Ptr::of(&mut total)).unwrap();
    assert_eq!(total as u64, MEMORY);
    let mut pointer = 0;
    assert_eq!(cuMemAlloc_v2(Ptr::of(&mut pointer), free + 1), Err(CUresult::ERROR_OUT_OF_MEMORY));
    cuMemAlloc_v2(Ptr::of(&mut pointer), free).unwrap();
    assert_eq!(cuMemAlloc_v2(Ptr::of(&mut 0), 1), Err(CUresult::ERROR_OUT_OF_MEMORY));
    cuMemFreeAsync(pointer, legacy()).unwrap();
    cuStreamSynchronize(legacy()).unwrap();
    cuMemAlloc_v2(Ptr::of(&mut pointer), 1).unwrap();
}

const MIB: usize = 1 << 20;

#[test]
fn unmapped_chunk_keeps_its_bytes() {
    let _test = begin_test();
    let before = row().memory_bytes;
    let mut prop =
        CUmemAllocationProp { kind: 1, location: CUmemLocation { kind: 1, id: 0 }, ..Default::default() };
    let (mut chunk, mut at, mut elsewhere) = (0, 0, 0);
    cuMemCreate(Ptr::of(&mut chunk), 2 * MIB, Ptr::of(&mut prop), 0).unwrap();
    assert_eq!(
        cuMemCreate(Ptr::of(&mut 0), 3 * MIB, Ptr::of(&mut prop), 0),
        Err(CUresult::ERROR_INVALID_VALUE)
    );
    cuMemAddressReserve(Ptr::of(&mut at), 4 * MIB, 0, 0, 0).unwrap();
    cuMemAddressReserve(Ptr::of(&mut elsewhere), 2 * MIB, 0, 0, 0).unwrap();
    cuMemMap(at + 2 * MIB as u64, 2 * MIB, 0, chunk, 0).unwrap();
    assert_eq!(cuMemsetD8_v2(at, 1, 8), Err(CUresult::ERROR_INVALID_VALUE), "nothing is mapped there");
    cuMemsetD32_v2(at + 2 * MIB as u64, 77, 4).unwrap();
    cuMemUnmap(at + 2 * MIB as u64, 2 * MIB).unwrap();
    cuMemMap(elsewhere, 2 * MIB, 0, chunk, 0).unwrap();
    assert_eq!(read(elsewhere, 2), [77 << 32 | 77; 2]);
    cuMemRelease(chunk).unwrap();
    assert_eq!(row().memory_bytes, before + 2 * MIB as u64, "still mapped");
    cuMemUnmap(elsewhere, 2 * MIB).unwrap();
    assert_eq!(row().memory_bytes, before);
    cuMemAddressFree(at, 4 * MIB).unwrap();
    cuMemAddressFree(elsewhere, 2 * MIB).unwrap();
}

#[test]
fn handle_retained_from_a_mapping_is_the_mapped_one_and_keeps_the_memory() {
    let _test = begin_test();
    let before = row().memory_bytes;
    let mut prop =
        CUmemAllocationProp { kind: 1, location: CUmemLocation { kind: 1, id: 0 }, ..Default::default() };
    let (mut chunk, mut at, mut again) = (0, 0, 0);
    cuMemCreate(Ptr::of(&mut chunk), 2 * MIB, Ptr::of(&mut prop), 0).unwrap();
    cuMemAddressReserve(Ptr::of(&mut at), 2 * MIB, 0, 0, 0).unwrap();
    cuMemMap(at, 2 * MIB, 0, chunk, 0).unwrap();
    let inside = Ptr::to_address(usize::try_from(at).unwrap() + 8);
    cuMemRetainAllocationHandle(Ptr::of(&mut again), inside).unwrap();
    assert_eq!(again, chunk, "with two references now");
    cuMemRelease(chunk).unwrap();
    cuMemRelease(chunk).unwrap();
    assert_eq!(cuMemRelease(chunk), Err(CUresult::ERROR_INVALID_VALUE), "only the mapping is left");
    cuMemRetainAllocationHandle(Ptr::of(&mut again), inside).unwrap();
    assert_eq!(again, chunk, "with one reference");
    cuMemUnmap(at, 2 * MIB).unwrap();
    assert_eq!(row().memory_bytes, before + 2 * MIB as u64, "the handle is not released");
    cuMemRelease(chunk).unwrap();
    assert_eq!(row().memory_bytes, before);
    assert_eq!(cuMemRelease(chunk), Err(CUresult::ERROR_INVALID_VALUE));
    cuMemAddressFree(at, 2 * MIB).unwrap();
}

#[test]
fn call_that_is_refused_for_an_absent_pointer_has_no_effect() {
    let _test = begin_test();
    let context = || {
        let mut now = std::ptr::null_mut();
        cuCtxGetCurrent(Ptr::of(&mut now)).unwrap();
        now.addr()
    };
    let before = (context(), row().memory_bytes);
    let mut address = 0;
    for refused in [
        cuCtxCreate_v2(Ptr::null(), 0, 0),
        cuCtxAttach(Ptr::null(), 0),
        cuDevicePrimaryCtxRetain(Ptr::null(), 0),
        cuMemAllocPitch_v2(Ptr::of(&mut address), Ptr::null(), 100, 10, 4),
        cuMemAllocAsync(Ptr::null(), 1_003, legacy()),
        cuStreamCreate(Ptr::null(), CU_STREAM_NON_BLOCKING),
    ] {
        assert_eq!(refused, Err(CUresult::ERROR_INVALID_VALUE));
    }
    assert_eq!((context(), row().memory_bytes), before);
}
