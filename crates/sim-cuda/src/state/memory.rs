//! Device and pinned memory: allocations, their owners, and their release.

use super::chunk::{Chunk, Referenced};
use super::context::{Context, Device};
use super::driver::driver;
use super::mapping::Mapping;
use super::pool::{Freed, pool_used};
use super::{lock, status_of};
use crate::border::{Span, Status};
use sluice_driver_api::CUresult;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Begin of the handles of pools; beyond those of [`super::table`].
const POOL_HANDLES: usize = 0x00c0_ded0_0000_0000;
pub(crate) type PoolId = usize;

const READ_ONLY: u32 = 8;
const REGISTRATION: u32 = 15;

/// The origin of a piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cuMemAlloc and cuMemAllocPitch.
    Device,
    /// cuMemAllocManaged.
    Managed,
    /// cuMemAllocAsync, from this pool.
    Pool(PoolId),
    /// cuMemAllocFromPoolAsync, from this pool of host memory.
    HostPool(PoolId),
    /// cuMemAllocAsync in a capture: counted from the first launch of the graph on.
    Graph,
    /// cuMemHostAlloc and cuMemAllocHost: host memory.
    Host,
    /// cuMemHostRegister: host memory that the program has allocated.
    Registered,
    /// cuMemAddressReserve: addresses into which chunks are mapped.
    Reserved,
    /// cuIpcOpenMemHandle: memory of another process.
    Imported,
    /// The memory of an array or a mipmapped array; the program does not know its address.
    Array,
}

impl Origin {
    /// Whether it counts as device memory.
    fn is_counted(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Pool(_) | Self::Array)
    }

    /// Whether the program frees it by its address in device memory.
    pub(crate) fn is_freed_by_address(self) -> bool {
        matches!(self, Self::Device | Self::Managed | Self::Pool(_) | Self::HostPool(_) | Self::Graph)
    }

    /// Whether it belongs to a pool.
    fn is_of_pool(self) -> bool {
        matches!(self, Self::Pool(_) | Self::HostPool(_))
    }

    /// Whether the host can reach it without a copy.
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Registered)
    }
}

pub(crate) struct Piece {
    pub(crate) address: usize,
    /// Requested bytes, which are counted.
    pub(crate) len: usize,
    pub(crate) origin: Origin,
    pub(crate) device: Arc<Device>,
    /// The context with which it ends.
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(super) mapping: Option<Mapping>,
    /// Whether memory of a graph is counted.
    pub(super) is_backed: AtomicBool,
    /// The file that has its memory since it was exported to other processes.
    pub(super) exported: Mutex<Option<File>>,
}

impl Piece {
    /// Whether it was registered as memory that the GPU only reads.
    pub(crate) fn is_read_only(&self) -> bool {
        self.origin == Origin::Registered && self.flags & READ_ONLY != 0
    }

    /// Ends the piece: from here on no thread reads its words, and its bytes are free.
    pub(super) fn end(&self) {
        // Streams of every device may wait for its words.
        if let Ok(driver) = driver() {
            driver.devices.iter().for_each(|device| device.words.forget(self.address, self.len));
        }
        if self.origin.is_counted() || self.is_backed.load(Ordering::SeqCst) {
            // The daemon may have ended, and with it the count.
            let _ = self.device.gpu.free(self.len as u64);
        }
    }
}

pub(crate) struct Pool {
    pub(crate) device: Arc<Device>,
    pub(crate) is_host: bool,
    /// Values of its settable attributes.
    pub(crate) attributes: HashMap<u32, u64>,
    used_high: usize,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pieces: BTreeMap<usize, Arc<Piece>>,
    pub(super) chunks: HashMap<usize, Referenced>,
    pub(super) mapped: BTreeMap<usize, Arc<Chunk>>,
    pub(super) pools: HashMap<PoolId, Pool>,
    /// Memory of pools that was freed, and that a pool still has.
    pub(super) freed: BTreeMap<usize, Freed>,
    default_pools: HashMap<usize, PoolId>,
    pub(super) next_handle: usize,
}

impl State {
    /// Takes a piece out. The caller ends it without the lock; until then no other allocation has its address.
    pub(super) fn remove(&mut self, address: usize) -> Option<Arc<Piece>> {
        self.freed.remove(&address);
        self.pieces.remove(&address)
    }
}

#[derive(Default)]
pub(crate) struct Memory(pub(super) Mutex<State>);

impl Memory {
    /// Allocates device or host memory. Zero bytes are INVALID_VALUE.
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
            is_backed: AtomicBool::new(false),
            exported: Mutex::default(),
        });
        Ok(address)
    }

    pub(super) fn keep(&self, piece: Piece) {
        let mut state = lock(&self.0);
        if let Origin::Pool(pool) = piece.origin {
            let used = pool_used(&state, pool) + piece.len;
            if let Some(pool) = state.pools.get_mut(&pool) {
                pool.used_high = pool.used_high.max(used);
            }
        }
        state.pieces.insert(piece.address, Arc::new(piece));
    }

    /// Registers host memory of the program.
    pub(crate) fn register(&self, context: &Context, address: usize, len: usize, flags: u32) -> Status {
        if len == 0 || address == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        if self.find(address).is_some() || self.find(address + len - 1).is_some() {
            return Err(CUresult::ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let is_refused = flags & READ_ONLY == 0 && !super::mapping::is_writable(address, len);
        if flags & !REGISTRATION != 0 || is_refused {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let (device, context) = (context.device.clone(), context.handle);
        let is_backed = AtomicBool::new(false);
        self.keep(Piece {
            address,
            len,
            origin: Origin::Registered,
            device,
            context,
            flags,
            mapping: None,
            is_backed,
            exported: Mutex::default(),
        });
        Ok(())
    }

    /// The piece of memory that begins at this address.
    pub(crate) fn at(&self, address: usize) -> Option<Arc<Piece>> {
        self.find(address).filter(|piece| piece.address == address)
    }

    /// The piece of memory that contains an address.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Piece>> {
        let state = lock(&self.0);
        let (_, piece) = state.pieces.range(..=address).next_back()?;
        (address < piece.address + piece.len).then(|| piece.clone())
    }

    /// A span if all of it is memory that a kernel can use.
    pub(crate) fn span(&self, address: usize, len: usize) -> Option<Span> {
        let found = self.find(address)?;
        let end = address.checked_add(len)?;
        if end > found.address + found.len {
            return None;
        }
        if found.origin == Origin::Reserved && !self.is_backed(address, end) {
            return None;
        }
        Some(Span::found(address, len))
    }

    pub(crate) fn is_read_only(&self, span: Span) -> bool {
        self.find(span.address()).is_some_and(|found| found.is_read_only())
    }

    /// Frees a piece if it has one of these origins.
    pub(crate) fn release(&self, address: usize, which: impl FnOnce(Origin) -> bool) -> Status {
        let piece = {
            let mut state = lock(&self.0);
            if !state.pieces.get(&address).is_some_and(|piece| which(piece.origin)) {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
            state.remove(address)
        };
        piece.iter().for_each(|piece| piece.end());
        Ok(())
    }

    /// Ends the memory of a context. Pools belong to their device: their memory outlives contexts, also the primary one (measured on an H100,
    /// driver 13.0).
    pub(crate) fn release_context(&self, context: usize) {
        let gone: Vec<Arc<Piece>> = {
            let mut state = lock(&self.0);
            let gone: Vec<_> = state
                .pieces
                .extract_if(.., |_, piece| piece.context == context && !piece.origin.is_of_pool())
                .map(|(_, piece)| piece)
                .collect();
            for piece in &gone {
                state.freed.remove(&piece.address);
            }
            gone
        };
        gone.iter().for_each(|piece| piece.end());
    }

    pub(crate) fn create_pool(&self, device: &Arc<Device>, is_host: bool) -> PoolId {
        let mut state = lock(&self.0);
        state.next_handle += 1;
        let id = POOL_HANDLES | state.next_handle << 4;
        state
            .pools
            .insert(id, Pool { device: device.clone(), is_host, attributes: HashMap::new(), used_high: 0 });
        id
    }

    /// The default pool of a device.
    pub(crate) fn default_pool(&self, device: &Arc<Device>) -> PoolId {
        let known = lock(&self.0).default_pools.get(&device.ordinal).copied();
        known.unwrap_or_else(|| {
            let made = self.create_pool(device, false);
            *lock(&self.0).default_pools.entry(device.ordinal).or_insert(made)
        })
    }

    /// Destroys a pool. Its allocations are kept, and what it has of freed memory is released. A device's default pool cannot be
    /// destroyed.
    pub(crate) fn destroy_pool(&self, id: PoolId) -> Status {
        {
            let mut state = lock(&self.0);
            if state.default_pools.values().any(|each| *each == id) {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
            state.pools.remove(&id).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        }
        self.end_pool(id);
        Ok(())
    }

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

/// Counts device memory. If there is not enough, applies the frees of streams first.
pub(super) fn count(device: &Device, len: usize) -> Status {
    if device.gpu.allocate(len as u64).is_ok() {
        return Ok(());
    }
    device.gpu.apply_effects();
    device.gpu.allocate(len as u64).map_err(status_of)
}
