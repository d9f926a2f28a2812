//! Every way of getting device memory that Sluice charges.

use std::ptr;

use sluice_driver_api::types::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdeviceptr,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemPoolProps, CUmemoryPool,
    CUmipmappedArray,
};

use super::random::Random;
use crate::driver::{Error, call};
use crate::session::{Session, Stream};

/// `cuMemCreate` accepts multiples of this only. All sizes are such multiples, so what is requested is also what is used.
const GRANULE: usize = 2 << 20;
/// Width of pitched memory and of arrays.
const ROW: usize = 1 << 20;
/// `CU_MEM_ATTACH_GLOBAL`, `CU_AD_FORMAT_FLOAT`, `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const ATTACH_GLOBAL: u32 = 1;
const FORMAT_FLOAT: u32 = 0x20;
const PINNED: u32 = 1;
const RELEASE_THRESHOLD: u32 = 4;

/// How memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `cuMemAlloc`.
    Linear,
    /// `cuMemAllocPitch`.
    Pitched,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync`, from the default pool.
    StreamOrdered,
    /// `cuMemAllocFromPoolAsync`.
    Pooled,
    /// `cuMemCreate`, not mapped.
    Chunk,
    /// `cuMemCreate` and `cuMemMap`; the mapping keeps the memory, not the handle.
    Mapped,
    /// `cuArrayCreate`.
    Array,
    /// `cuArray3DCreate`.
    Array3d,
    /// `cuMipmappedArrayCreate` with one level.
    Mipmapped,
}

const KINDS: [Kind; 10] = [
    Kind::Linear,
    Kind::Pitched,
    Kind::Managed,
    Kind::Chunk,
    Kind::Mapped,
    Kind::Array,
    Kind::Array3d,
    Kind::Mipmapped,
    Kind::StreamOrdered,
    Kind::Pooled,
];
/// The first of them need no pool.
const WITHOUT_POOL: usize = 8;

/// Device memory. It has no destructor, because errors of freeing matter here: [`Allocation::free`].
#[derive(Debug)]
pub(crate) struct Allocation {
    kind: Kind,
    /// Address or handle, as the kind has it.
    handle: u64,
    bytes: usize,
}

impl Allocation {
    /// Allocates memory of a random kind and size in the current context; of a kind that needs no pool without one.
    pub(crate) fn random(
        session: &Session,
        random: &mut Random,
        stream: &Stream<'_>,
        pool: Option<CUmemoryPool>,
    ) -> Result<Self, Error> {
        let kind = KINDS[random.index(if pool.is_some() { KINDS.len() } else { WITHOUT_POOL })];
        let bytes = GRANULE * (1 + random.index(24));
        let handle = allocate(session, kind, bytes, stream, pool.unwrap_or(ptr::null_mut()))?;
        Ok(Self { kind, handle, bytes })
    }

    /// The address, if a memset or a copy on a stream can use it.
    pub(crate) fn address(&self) -> Option<CUdeviceptr> {
        let has_address = !matches!(self.kind, Kind::Chunk | Kind::Array | Kind::Array3d | Kind::Mipmapped);
        has_address.then_some(self.handle)
    }

    /// Frees it. `stream` is where it was allocated and used.
    pub(crate) fn free(
        self,
        session: &Session,
        random: &mut Random,
        stream: &Stream<'_>,
    ) -> Result<(), Error> {
        let driver = session.driver();
        let Self { kind, handle, bytes } = self;
        match kind {
            Kind::StreamOrdered | Kind::Pooled if !random.once_in(4) => {
                // SAFETY: the driver returned this address, and it is freed only here.
                unsafe { call!(driver, cuMemFreeAsync(handle, stream.handle())) }
            }
            Kind::Linear | Kind::Pitched | Kind::Managed | Kind::StreamOrdered | Kind::Pooled => {
                stream.synchronize()?;
                // SAFETY: as above; the last use was on the stream.
                unsafe { call!(driver, cuMemFree_v2(handle)) }
            }
            // SAFETY: the driver returned this handle, and it is released only here.
            Kind::Chunk => unsafe { call!(driver, cuMemRelease(handle)) },
            Kind::Mapped => {
                stream.synchronize()?;
                // SAFETY: exactly these bytes are mapped there, and their last use was on the stream.
                unsafe { call!(driver, cuMemUnmap(handle, bytes))? };
                // SAFETY: exactly these addresses were reserved, and nothing is mapped there.
                unsafe { call!(driver, cuMemAddressFree(handle, bytes)) }
            }
            Kind::Array | Kind::Array3d => {
                // SAFETY: the handle came from the driver as a pointer, and it is destroyed only here.
                unsafe { call!(driver, cuArrayDestroy(pointer(handle))) }
            }
            Kind::Mipmapped => {
                // SAFETY: as for arrays.
                unsafe { call!(driver, cuMipmappedArrayDestroy(pointer(handle))) }
            }
        }
    }
}

/// Makes a pool that keeps all freed memory, or none.
pub(crate) fn create_pool(session: &Session, random: &mut Random) -> Result<CUmemoryPool, Error> {
    let mut pool: CUmemoryPool = ptr::null_mut();
    let props = CUmemPoolProps { allocType: PINNED, location: here(session), ..CUmemPoolProps::default() };
    // SAFETY: the driver reads one struct and writes one handle to a local.
    unsafe { call!(session.driver(), cuMemPoolCreate(&raw mut pool, &raw const props))? };
    let mut threshold = if random.once_in(2) { u64::MAX } else { 0 };
    // SAFETY: the pool was just made, and this attribute is a u64, which the driver reads.
    unsafe {
        call!(session.driver(), cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (&raw mut threshold).cast()))?
    };
    Ok(pool)
}

fn here(session: &Session) -> CUmemLocation {
    CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: session.device() }
}

/// A handle of the driver that was kept as a number.
fn pointer<T>(handle: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(usize::try_from(handle).unwrap_or(0))
}

fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

fn allocate(
    session: &Session,
    kind: Kind,
    bytes: usize,
    stream: &Stream<'_>,
    pool: CUmemoryPool,
) -> Result<u64, Error> {
    let driver = session.driver();
    let mut address: CUdeviceptr = 0;
    match kind {
        Kind::Linear => {
            // SAFETY: the driver writes one address to a local.
            unsafe { call!(driver, cuMemAlloc_v2(&raw mut address, bytes))? };
        }
        Kind::Pitched => {
            let mut pitch = 0;
            // SAFETY: the driver writes an address and a size to two locals.
            unsafe {
                call!(driver, cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, ROW, bytes / ROW, 16))?
            };
        }
        Kind::Managed => {
            // SAFETY: the driver writes one address to a local.
            unsafe { call!(driver, cuMemAllocManaged(&raw mut address, bytes, ATTACH_GLOBAL))? };
        }
        Kind::StreamOrdered => {
            // SAFETY: the driver writes one address to a local; the stream is alive.
            unsafe { call!(driver, cuMemAllocAsync(&raw mut address, bytes, stream.handle()))? };
        }
        Kind::Pooled => {
            // SAFETY: as above; the caller's pool is alive.
            unsafe {
                call!(driver, cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, stream.handle()))?
            };
        }
        Kind::Chunk => return chunk(session, bytes),
        Kind::Mapped => return mapped(session, bytes),
        Kind::Array => {
            let (mut array, of): (CUarray, _) = (ptr::null_mut(), flat(bytes));
            // SAFETY: the driver reads one struct and writes one handle to a local.
            unsafe { call!(driver, cuArrayCreate_v2(&raw mut array, &raw const of))? };
            address = number(array);
        }
        Kind::Array3d => {
            let (mut array, of): (CUarray, _) = (ptr::null_mut(), deep(bytes));
            // SAFETY: as above.
            unsafe { call!(driver, cuArray3DCreate_v2(&raw mut array, &raw const of))? };
            address = number(array);
        }
        Kind::Mipmapped => {
            let (mut array, of): (CUmipmappedArray, _) = (ptr::null_mut(), deep(bytes));
            // SAFETY: as above.
            unsafe { call!(driver, cuMipmappedArrayCreate(&raw mut array, &raw const of, 1))? };
            address = number(array);
        }
    }
    Ok(address)
}

/// An array of elements of 16 bytes: four channels of 32 bits.
fn flat(bytes: usize) -> CUDA_ARRAY_DESCRIPTOR {
    CUDA_ARRAY_DESCRIPTOR { Width: ROW / 64, Height: bytes / (ROW / 4), Format: FORMAT_FLOAT, NumChannels: 4 }
}

fn deep(bytes: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
    let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = flat(bytes);
    CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 }
}

fn chunk(session: &Session, bytes: usize) -> Result<u64, Error> {
    let mut handle: CUmemGenericAllocationHandle = 0;
    let prop =
        CUmemAllocationProp { kind: PINNED, location: here(session), ..CUmemAllocationProp::default() };
    // SAFETY: the driver reads one struct and writes one handle to a local.
    unsafe { call!(session.driver(), cuMemCreate(&raw mut handle, bytes, &raw const prop, 0))? };
    Ok(handle)
}

fn mapped(session: &Session, bytes: usize) -> Result<u64, Error> {
    let driver = session.driver();
    let handle = chunk(session, bytes)?;
    let mut address: CUdeviceptr = 0;
    // SAFETY: the driver writes one address to a local.
    unsafe { call!(driver, cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0))? };
    // SAFETY: the addresses were just reserved, and the handle has as many bytes.
    unsafe { call!(driver, cuMemMap(address, bytes, 0, handle, 0))? };
    // SAFETY: the handle is not used after this.
    unsafe { call!(driver, cuMemRelease(handle))? };
    Ok(address)
}
