//! Memory: what is allocated where, for whom, and how it is given back.

use super::context::{Context, Device};
use super::mapping::Mapping;
use super::{lock, status_of};
use crate::border::{Span, Status};
use sluice_driver_api::CUresult;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Begin of the handles of pools; beyond those of [`super::table`].
const POOL_HANDLES: usize = 0x00c0_ded0_0000_0000;
/// Begin of the handles of chunks.
const CHUNK_HANDLES: usize = 0x00c0_dee0_0000_0000;

/// A memory pool, by its handle.
pub(crate) type PoolId = usize;

/// How a piece of memory came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cuMemAlloc and cuMemAllocPitch.
    Device,
    /// cuMemAllocManaged.
    Managed,
    /// cuMemAllocAsync, from this pool.
    Pool(PoolId),
    /// cuMemHostAlloc and cuMemAllocHost: host memory.
    Host,
    /// cuMemHostRegister: host memory that the program made.
    Registered,
    /// cuMemAddressReserve: addresses into which chunks are mapped.
    Reserved,
    /// Behind an array or a mipmapped array; it has no address for the program.
    Array,
}

impl Origin {
    /// Whether it takes device memory by itself.
    fn is_counted(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Pool(_) | Self::Array)
    }

    /// Whether the host can reach it without a copy.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Registered)
    }
}

/// A piece of memory.
pub(crate) struct Piece {
    pub(crate) address: usize,
    /// Bytes as asked for; what is counted.
    pub(crate) len: usize,
    pub(crate) origin: Origin,
    pub(crate) device: Arc<Device>,
    /// The context that it ends with.
    pub(crate) context: usize,
    pub(crate) flags: u32,
    mapping: Option<Mapping>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.origin.is_counted() {
            // The daemon may be gone, and with it the count.
            let _ = self.device.gpu.free(self.len as u64);
        }
    }
}

/// A chunk from cuMemCreate; its memory is given back when the handle is released and nothing maps it.
pub(crate) struct Chunk {
    pub(crate) len: usize,
    pub(crate) device: Arc<Device>,
    file: OwnedFd,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let _ = self.device.gpu.free(self.len as u64);
    }
}

/// A memory pool.
pub(crate) struct Pool {
    pub(crate) device: Arc<Device>,
    /// Values of its settable attributes.
    pub(crate) attributes: HashMap<u32, u64>,
    used_high: usize,
}

#[derive(Default)]
struct State {
    pieces: BTreeMap<usize, Piece>,
    chunks: HashMap<usize, Arc<Chunk>>,
    /// Where chunks are mapped.
    mapped: BTreeMap<usize, Arc<Chunk>>,
    pools: HashMap<PoolId, Pool>,
    default_pools: HashMap<usize, PoolId>,
    next_handle: usize,
}

/// All memory of the process.
#[derive(Default)]
pub(crate) struct Memory(Mutex<State>);

/// What is known of an address.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) base: usize,
    pub(crate) len: usize,
    pub(crate) origin: Origin,
    pub(crate) context: usize,
    pub(crate) device: i32,
    pub(crate) flags: u32,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes device or host memory. Zero bytes are INVALID_VALUE.
    pub(crate) fn allocate(
        &self,
        context: &Context,
        len: usize,
        origin: Origin,
        flags: u32,
    ) -> Result<usize, CUresult> {
        if len == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        context.check()?;
        let device = &context.device;
        if origin.is_counted() {
            count(device, len)?;
        }
        let mapping = match Mapping::memory(len) {
            Ok(mapping) => mapping,
            Err(_) => {
                if origin.is_counted() {
                    let _ = device.gpu.free(len as u64);
                }
                return Err(CUresult::ERROR_OUT_OF_MEMORY);
            }
        };
        let address = mapping.address();
        self.keep(Piece {
            address,
            len,
            origin,
            device: device.clone(),
            context: context.handle,
            flags,
            mapping: Some(mapping),
        });
        Ok(address)
    }

    fn keep(&self, piece: Piece) {
        let mut state = lock(&self.0);
        if let Origin::Pool(pool) = piece.origin {
            let used = pool_used(&state, pool) + piece.len;
            if let Some(pool) = state.pools.get_mut(&pool) {
                pool.used_high = pool.used_high.max(used);
            }
        }
        state.pieces.insert(piece.address, piece);
    }

    /// Takes host memory of the program into account.
    pub(crate) fn register(&self, context: &Context, address: usize, len: usize, flags: u32) -> Status {
        if len == 0 || address == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        if self.find(address).is_some() || self.find(address + len - 1).is_some() {
            return Err(CUresult::ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let (device, context) = (context.device.clone(), context.handle);
        self.keep(Piece { address, len, origin: Origin::Registered, device, context, flags, mapping: None });
        Ok(())
    }

    /// Addresses without memory.
    pub(crate) fn reserve(
        &self,
        device: &Arc<Device>,
        len: usize,
        alignment: usize,
    ) -> Result<usize, CUresult> {
        let mapping = Mapping::addresses(len, alignment).map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)?;
        let address = mapping.address();
        let origin = Origin::Reserved;
        self.keep(Piece {
            address,
            len,
            origin,
            device: device.clone(),
            context: 0,
            flags: 0,
            mapping: Some(mapping),
        });
        Ok(address)
    }

    /// What the piece of memory at exactly this address is.
    pub(crate) fn at(&self, address: usize) -> Option<Found> {
        self.find(address).filter(|found| found.base == address)
    }

    /// What an address lies in.
    pub(crate) fn find(&self, address: usize) -> Option<Found> {
        let state = lock(&self.0);
        let (_, piece) = state.pieces.range(..=address).next_back()?;
        (address < piece.address + piece.len).then(|| Found {
            base: piece.address,
            len: piece.len,
            origin: piece.origin,
            context: piece.context,
            device: piece.device.number(),
            flags: piece.flags,
        })
    }

    /// A span if all of it is memory that a kernel can use.
    pub(crate) fn span(&self, address: usize, len: usize) -> Option<Span> {
        let found = self.find(address)?;
        let end = address.checked_add(len)?;
        if end > found.base + found.len {
            return None;
        }
        if found.origin == Origin::Reserved && !self.is_backed(address, end) {
            return None;
        }
        Some(Span::found(address, len))
    }

    /// Whether chunks are mapped without a gap from `begin` to `end`.
    fn is_backed(&self, begin: usize, end: usize) -> bool {
        let state = lock(&self.0);
        let mut at = begin;
        while at < end {
            match state.mapped.range(..=at).next_back() {
                Some((base, chunk)) if at < base + chunk.len => at = base + chunk.len,
                _ => return false,
            }
        }
        true
    }

    /// Gives a piece back if it came to be in one of these ways.
    pub(crate) fn release(&self, address: usize, which: impl FnOnce(Origin) -> bool) -> Status {
        let piece = {
            let mut state = lock(&self.0);
            if !state.pieces.get(&address).is_some_and(|piece| which(piece.origin)) {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
            state.pieces.remove(&address)
        };
        drop(piece);
        Ok(())
    }

    /// Gives back everything that ends with a context.
    pub(crate) fn release_context(&self, context: usize) {
        let gone: Vec<Piece> = {
            let mut state = lock(&self.0);
            state.pieces.extract_if(.., |_, piece| piece.context == context).map(|(_, piece)| piece).collect()
        };
        drop(gone);
    }

    /// Takes a chunk of device memory that can be mapped, and returns its handle.
    pub(crate) fn create_chunk(&self, device: &Arc<Device>, len: usize) -> Result<usize, CUresult> {
        let file = super::mapping::file(len).map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)?;
        count(device, len)?;
        let mut state = lock(&self.0);
        state.next_handle += 1;
        let handle = CHUNK_HANDLES | state.next_handle << 4;
        state.chunks.insert(handle, Arc::new(Chunk { len, device: device.clone(), file }));
        Ok(handle)
    }

    /// Releases the handle of a chunk.
    pub(crate) fn release_chunk(&self, handle: usize) -> Status {
        let chunk = lock(&self.0).chunks.remove(&handle);
        chunk.map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    /// A handle for the chunk that is mapped at an address.
    pub(crate) fn retain_chunk(&self, address: usize) -> Result<usize, CUresult> {
        let mut state = lock(&self.0);
        let mapped =
            state.mapped.range(..=address).next_back().filter(|(base, chunk)| address < *base + chunk.len);
        let chunk = mapped.map(|(_, chunk)| chunk.clone()).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        state.next_handle += 1;
        let handle = CHUNK_HANDLES | state.next_handle << 4;
        state.chunks.insert(handle, chunk);
        Ok(handle)
    }

    /// The chunk of a handle.
    pub(crate) fn chunk(&self, handle: usize) -> Option<Arc<Chunk>> {
        lock(&self.0).chunks.get(&handle).cloned()
    }

    /// Maps a chunk into reserved addresses.
    pub(crate) fn map_chunk(&self, address: usize, len: usize, handle: usize) -> Status {
        let mut state = lock(&self.0);
        let chunk = state.chunks.get(&handle).cloned().ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let free = state
            .mapped
            .range(..address + len)
            .next_back()
            .is_none_or(|(base, other)| base + other.len <= address);
        let piece = state.pieces.range(..=address).next_back().map(|(_, piece)| piece);
        match piece {
            Some(piece) if piece.origin == Origin::Reserved && len == chunk.len && free => {
                let mapping = piece.mapping.as_ref().ok_or(CUresult::ERROR_INVALID_VALUE)?;
                mapping
                    .back(address - piece.address, len, Some(chunk.file.as_fd()))
                    .map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
            }
            _ => return Err(CUresult::ERROR_INVALID_VALUE),
        }
        state.mapped.insert(address, chunk);
        Ok(())
    }

    /// Unmaps all chunks from `address` on, `len` bytes, each whole.
    pub(crate) fn unmap(&self, address: usize, len: usize) -> Status {
        let mut state = lock(&self.0);
        let inside: Vec<(usize, usize)> =
            state.mapped.range(address..address + len).map(|(base, chunk)| (*base, chunk.len)).collect();
        let total: usize = inside.iter().map(|(_, len)| len).sum();
        if inside.is_empty() || total != len {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        for (base, len) in inside {
            if let Some((_, piece)) = state.pieces.range(..=base).next_back()
                && let Some(mapping) = &piece.mapping
            {
                mapping.back(base - piece.address, len, None).map_err(|_| CUresult::ERROR_UNKNOWN)?;
            }
            state.mapped.remove(&base);
        }
        Ok(())
    }

    /// Gives reserved addresses back; what is mapped there is an error.
    pub(crate) fn release_addresses(&self, address: usize, len: usize) -> Status {
        {
            let state = lock(&self.0);
            let in_use = state.mapped.range(address..address + len).next().is_some();
            if in_use || state.pieces.get(&address).is_none_or(|piece| piece.len != len) {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
        }
        self.release(address, |origin| origin == Origin::Reserved)
    }

    /// Makes a pool.
    pub(crate) fn create_pool(&self, device: &Arc<Device>) -> PoolId {
        let mut state = lock(&self.0);
        state.next_handle += 1;
        let id = POOL_HANDLES | state.next_handle << 4;
        state.pools.insert(id, Pool { device: device.clone(), attributes: HashMap::new(), used_high: 0 });
        id
    }

    /// The pool that a device has from the beginning.
    pub(crate) fn default_pool(&self, device: &Arc<Device>) -> PoolId {
        let known = lock(&self.0).default_pools.get(&device.ordinal).copied();
        known.unwrap_or_else(|| {
            let made = self.create_pool(device);
            *lock(&self.0).default_pools.entry(device.ordinal).or_insert(made)
        })
    }

    /// Ends a pool; what was allocated from it stays. A device's default pool cannot be ended.
    pub(crate) fn destroy_pool(&self, id: PoolId) -> Status {
        let mut state = lock(&self.0);
        if state.default_pools.values().any(|each| *each == id) {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        state.pools.remove(&id).map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    /// Does something with a pool, which is told how many bytes of it are in use and at most have been.
    pub(crate) fn with_pool<T>(
        &self,
        id: PoolId,
        work: impl FnOnce(&mut Pool, usize, usize) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        let mut state = lock(&self.0);
        let used = pool_used(&state, id);
        let pool = state.pools.get_mut(&id).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let high = pool.used_high;
        work(pool, used, high)
    }
}

fn pool_used(state: &State, id: PoolId) -> usize {
    state.pieces.values().filter(|piece| piece.origin == Origin::Pool(id)).map(|piece| piece.len).sum()
}

/// Counts device memory; when there is none left, memory that streams have given back is looked for first.
fn count(device: &Device, len: usize) -> Status {
    if device.gpu.allocate(len as u64).is_ok() {
        return Ok(());
    }
    device.gpu.settle();
    device.gpu.allocate(len as u64).map_err(|error| status_of(&error))
}
