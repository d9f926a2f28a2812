//! Memory that pools keep after it was freed: for later allocations of the same stream until the stream has reached the free, then for
//! all streams, up to the pool's release threshold.

use super::lock;
use super::memory::{Memory, Origin, Piece, PoolId, State};
use sluice_driver_api::types::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A piece of a pool that was freed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freed {
    /// The stream that has not reached the free; `None` once it has.
    stream: Option<usize>,
    /// Tells this free from another one of the same piece.
    number: usize,
    /// A wait of the host has ended since the stream reached the free. A query of the stream is not enough (measured on an H200, driver
    /// 580.159: `cuMemPoolTrimTo` gives back nothing before).
    is_observed: bool,
}

/// Bytes of the pieces that were not freed.
pub(super) fn pool_used(state: &State, id: PoolId) -> usize {
    let used = of_pool(state, id).filter(|piece| !state.freed.contains_key(&piece.address));
    used.map(|piece| piece.len).sum()
}

fn pool_reserved(state: &State, id: PoolId) -> usize {
    of_pool(state, id).map(|piece| piece.len).sum()
}

fn of_pool(state: &State, id: PoolId) -> impl Iterator<Item = &Arc<Piece>> {
    state.pieces.values().filter(move |piece| piece.origin == Origin::Pool(id))
}

impl Memory {
    /// Bytes that a pool has, freed ones included.
    pub(crate) fn pool_reserved(&self, id: PoolId) -> usize {
        pool_reserved(&lock(&self.0), id)
    }

    /// Freed memory of the same size that a stream may use again.
    pub(crate) fn reuse(&self, id: PoolId, len: usize, stream: usize) -> Option<usize> {
        let mut state = lock(&self.0);
        let fits = |address: &usize, freed: &Freed| {
            let piece = state.pieces.get(address);
            piece.is_some_and(|piece| piece.origin == Origin::Pool(id) && piece.len == len)
                && freed.stream.is_none_or(|of| of == stream)
        };
        let address = state.freed.iter().find(|(address, freed)| fits(address, freed)).map(|(at, _)| *at)?;
        state.freed.remove(&address);
        Some(address)
    }

    /// Frees a piece of a pool in stream order. Returns the number for [`finish_free`](Self::finish_free).
    pub(crate) fn begin_free(&self, address: usize, stream: usize) -> usize {
        let mut state = lock(&self.0);
        state.next_handle += 1;
        let number = state.next_handle;
        if state.pieces.get(&address).is_some_and(|piece| matches!(piece.origin, Origin::Pool(_))) {
            state.freed.insert(address, Freed { stream: Some(stream), number, is_observed: false });
        }
        number
    }

    /// The stream has reached the free: the pool keeps the piece below its release threshold.
    pub(crate) fn finish_free(&self, address: usize, number: usize) {
        let piece = {
            let mut state = lock(&self.0);
            let Some(origin) = state.pieces.get(&address).map(|piece| piece.origin) else { return };
            if let Origin::Pool(id) = origin {
                if state.freed.get(&address).is_none_or(|freed| freed.number != number) {
                    return;
                }
                let threshold = state
                    .pools
                    .get(&id)
                    .and_then(|pool| pool.attributes.get(&CU_MEMPOOL_ATTR_RELEASE_THRESHOLD).copied());
                if pool_reserved(&state, id) as u64 <= threshold.unwrap_or(0) {
                    state.freed.insert(address, Freed { stream: None, number, is_observed: false });
                    return;
                }
            }
            // A second free of the same memory has no effect, as with the real driver's pools.
            if origin.is_freed_by_address() { state.remove(address) } else { None }
        };
        piece.iter().for_each(|piece| piece.end());
    }

    /// A wait of the host has ended: pools can give back what streams have freed before.
    pub(crate) fn observe_frees(&self) {
        for freed in lock(&self.0).freed.values_mut() {
            freed.is_observed = freed.stream.is_none();
        }
    }

    /// A graph that allocates this piece is launched: the first launch counts the memory, which the device keeps for later launches.
    pub(crate) fn back_graph_memory(&self, address: usize) {
        if let Some(piece) = self.at(address).filter(|piece| piece.origin == Origin::Graph)
            && !piece.is_backed.load(SeqCst)
            && piece.device.gpu.allocate(piece.len as u64).is_ok()
        {
            piece.is_backed.store(true, SeqCst);
        }
    }

    /// Bytes of a device that are counted for graphs.
    pub(crate) fn graph_memory(&self, device: usize) -> usize {
        let state = lock(&self.0);
        let backed = state.pieces.values().filter(|piece| piece.is_backed.load(SeqCst));
        backed.filter(|piece| piece.device.ordinal == device).map(|piece| piece.len).sum()
    }

    /// Releases freed memory of a pool, of which a wait of the host has shown the free, until it has at most `keep` bytes.
    pub(crate) fn trim(&self, id: PoolId, keep: usize) {
        self.release_freed(id, keep, |freed| freed.is_observed);
    }

    /// The pool was destroyed: what it kept is released. What a stream has not freed yet is released when the stream reaches the free.
    pub(super) fn end_pool(&self, id: PoolId) {
        self.release_freed(id, 0, |freed| freed.stream.is_none());
    }

    fn release_freed(&self, id: PoolId, keep: usize, which: impl Fn(&Freed) -> bool) {
        let ended: Vec<Arc<Piece>> = {
            let mut state = lock(&self.0);
            let freed: Vec<usize> =
                state.freed.iter().filter(|(_, freed)| which(freed)).map(|(at, _)| *at).collect();
            let mut reserved = pool_reserved(&state, id);
            let mut ended = Vec::new();
            for address in freed {
                let is_of_pool =
                    state.pieces.get(&address).is_some_and(|piece| piece.origin == Origin::Pool(id));
                if is_of_pool && reserved > keep {
                    ended.extend(state.remove(address).inspect(|piece| reserved -= piece.len));
                }
            }
            ended
        };
        ended.iter().for_each(|piece| piece.end());
    }
}
