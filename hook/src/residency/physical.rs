//! Physical memory behind reserved addresses, by the driver's own functions.

use sluice_driver_api::types::*;
use sluice_hook_core::residency::{Chunk, GRANULE_BYTES, Range, chunk_sizes};

use crate::real;

/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: CUmemAllocationType = 1;
const ON_DEVICE: CUmemLocationType = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: CUmemAccess_flags = 3;

/// Reserves addresses for an allocation in the current context. It has no memory yet.
pub(super) fn reserve(bytes: u64, context: u64) -> Result<Range, CUresult> {
    let reserve = real::table().cuMemAddressReserve.ok_or(CUresult::ERROR_NOT_SUPPORTED)?;
    let mut address = 0;
    // SAFETY: `address` is writable.
    success(unsafe { reserve(&raw mut address, size(bytes), size(GRANULE_BYTES), 0, 0) })?;
    let mut next = address;
    let chunks = chunk_sizes(bytes).map(|bytes| {
        next += bytes;
        Chunk { address: next - bytes, bytes, handle: None }
    });
    Ok(Range { address, bytes, context, chunks: chunks.collect(), freed: false })
}

/// Gives all chunks of a range that have none memory on a device. If one cannot get it, none has any afterwards.
pub(super) fn fill(range: &mut Range, device: c_int) -> Result<(), CUresult> {
    let filled = range.chunks.iter_mut().try_for_each(|chunk| fill_chunk(chunk, device));
    if filled.is_err() {
        empty(range);
    }
    filled
}

/// Gives a chunk memory on a device, if it has none.
pub(super) fn fill_chunk(chunk: &mut Chunk, device: c_int) -> Result<(), CUresult> {
    let table = real::table();
    let (Some(create), Some(map), Some(allow)) = (table.cuMemCreate, table.cuMemMap, table.cuMemSetAccess)
    else {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    };
    if chunk.handle.is_some() {
        return Ok(());
    }
    let location = CUmemLocation { kind: ON_DEVICE, id: device };
    let properties = CUmemAllocationProp { kind: PINNED, location, ..CUmemAllocationProp::default() };
    let mut handle = 0;
    // SAFETY: `handle` is writable and the properties readable.
    success(unsafe { create(&raw mut handle, size(chunk.bytes), &raw const properties, 0) })?;
    // SAFETY: the addresses are reserved by `reserve`, and nothing is mapped there.
    if let Err(refused) = success(unsafe { map(chunk.address, size(chunk.bytes), 0, handle, 0) }) {
        release(handle);
        return Err(refused);
    }
    chunk.handle = Some(handle);
    let access = CUmemAccessDesc { location, flags: READ_AND_WRITE };
    // SAFETY: the whole chunk is mapped, and one descriptor is readable.
    let allowed = success(unsafe { allow(chunk.address, size(chunk.bytes), &raw const access, 1) });
    if allowed.is_err() {
        empty_chunk(chunk);
    }
    allowed
}

/// Gives back the memory of all chunks of a range. The content is lost.
pub(super) fn empty(range: &mut Range) {
    range.chunks.iter_mut().for_each(empty_chunk);
}

/// Gives back the memory of a chunk, if it has some. The content is lost.
pub(super) fn empty_chunk(chunk: &mut Chunk) {
    let Some(handle) = chunk.handle else { return };
    // SAFETY: the chunk is mapped there as a whole, and no work uses it: the caller has waited for that.
    let unmapped = real::table().cuMemUnmap.map(|unmap| unsafe { unmap(chunk.address, size(chunk.bytes)) });
    if unmapped == Some(CUresult::SUCCESS) {
        chunk.handle = None;
        release(handle);
    }
}

/// Gives back memory and addresses of an allocation that has ended.
pub(super) fn discard(range: &Range) {
    let mut range = range.clone();
    empty(&mut range);
    if let Some(free) = real::table().cuMemAddressFree {
        // SAFETY: `reserve` made this reservation. If something is still mapped there, the driver refuses.
        let _freed = unsafe { free(range.address, size(range.bytes)) };
    }
}

fn release(handle: CUmemGenericAllocationHandle) {
    if let Some(release) = real::table().cuMemRelease {
        // SAFETY: the handle is the hook's, and not used afterwards.
        let _released = unsafe { release(handle) };
    }
}

fn success(result: CUresult) -> Result<(), CUresult> {
    if result == CUresult::SUCCESS { Ok(()) } else { Err(result) }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
