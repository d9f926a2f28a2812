//! Chunks of device memory, reserved addresses, and mappings of chunks to addresses.

use super::context::Device;
use super::lock;
use super::mapping::{Mapping, file};
use super::memory::{Memory, Origin, Piece, count};
use crate::border::Status;
use sluice_driver_api::CUresult;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Begin of the handles of chunks.
const CHUNK_HANDLES: usize = 0x00c0_dee0_0000_0000;

/// A chunk from cuMemCreate. Its memory is freed when every reference to its handle is released and the chunk is mapped nowhere.
pub(crate) struct Chunk {
    /// Its only handle. It stays the same while the chunk is mapped, even with no reference left.
    handle: usize,
    pub(crate) len: usize,
    pub(crate) device: Arc<Device>,
    file: OwnedFd,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let _ = self.device.gpu.free(self.len as u64);
    }
}

/// A handle with at least one reference.
pub(super) struct Referenced {
    chunk: Arc<Chunk>,
    references: usize,
}

impl Memory {
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
            is_backed: false.into(),
            exported: Default::default(),
        });
        Ok(address)
    }

    /// Whether chunks are mapped without a gap from `begin` to `end`.
    pub(super) fn is_backed(&self, begin: usize, end: usize) -> bool {
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

    /// Allocates a chunk of device memory that can be mapped, and returns its handle.
    pub(crate) fn create_chunk(&self, device: &Arc<Device>, len: usize) -> Result<usize, CUresult> {
        let file = file(len).map_err(|_| CUresult::ERROR_OUT_OF_MEMORY)?;
        count(device, len)?;
        let mut state = lock(&self.0);
        state.next_handle += 1;
        let handle = CHUNK_HANDLES | state.next_handle << 4;
        let chunk = Arc::new(Chunk { handle, len, device: device.clone(), file });
        state.chunks.insert(handle, Referenced { chunk, references: 1 });
        Ok(handle)
    }

    /// Releases one reference to a handle. With the last one the handle is no longer valid.
    pub(crate) fn release_chunk(&self, handle: usize) -> Status {
        let last = {
            let mut state = lock(&self.0);
            let referenced = state.chunks.get_mut(&handle).ok_or(CUresult::ERROR_INVALID_VALUE)?;
            referenced.references -= 1;
            if referenced.references == 0 { state.chunks.remove(&handle) } else { None }
        };
        drop(last);
        Ok(())
    }

    /// Adds a reference to the handle of the chunk that is mapped at an address, and returns the handle.
    pub(crate) fn retain_chunk(&self, address: usize) -> Result<usize, CUresult> {
        let mut state = lock(&self.0);
        let mapped =
            state.mapped.range(..=address).next_back().filter(|(base, chunk)| address < *base + chunk.len);
        let chunk = mapped.map(|(_, chunk)| chunk.clone()).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let handle = chunk.handle;
        state.chunks.entry(handle).or_insert(Referenced { chunk, references: 0 }).references += 1;
        Ok(handle)
    }

    pub(crate) fn chunk(&self, handle: usize) -> Option<Arc<Chunk>> {
        lock(&self.0).chunks.get(&handle).map(|referenced| referenced.chunk.clone())
    }

    pub(crate) fn map_chunk(&self, address: usize, len: usize, handle: usize) -> Status {
        let mut state = lock(&self.0);
        let referenced = state.chunks.get(&handle).ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let chunk = referenced.chunk.clone();
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

    /// Unmaps the chunks that fill exactly the `len` bytes from `address` on.
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

    /// Releases reserved addresses; a mapping there is an error.
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
}
