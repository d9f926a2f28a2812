//! Memory that may leave the GPU. If the manager has sent host memory, allocations of this process are made in chunks behind addresses that
//! never change, and a thread moves all of them to the host and back, as the grant page tells. Calls that may use the memory wait
//! meanwhile.
//!
//! Without host memory a call costs one load, and nothing else happens.

mod allocation;
mod entrance;
mod mover;
mod physical;
mod state;
mod transfer;

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::*;

use sluice_hook_core::lock;
use sluice_hook_core::residency::ChunkTable;

use crate::host_memory;

pub(crate) use allocation::{allocate, free, size_of};
pub(crate) use entrance::enter;
use state::{CHUNKS, GATE, IS_ON, PINNING};

/// In the child of a fork: no call waits.
pub(crate) fn abandon() {
    IS_ON.store(false, Release);
    GATE.switch_off();
}

/// The end of a context, which keeps the mover off the chunks and off the host memory.
pub(crate) struct ContextEnd {
    chunks: MutexGuard<'static, ChunkTable>,
    _pinning: MutexGuard<'static, ()>,
}

/// Begins the end of a context; `None` if no memory of this process leaves.
pub(crate) fn begin_context_end() -> Option<ContextEnd> {
    IS_ON.load(Acquire).then(|| {
        let pinning = lock(&PINNING);
        ContextEnd { chunks: lock(&CHUNKS), _pinning: pinning }
    })
}

/// The context has ended: what was allocated in it is given back.
pub(crate) fn context_ended(end: Option<ContextEnd>, context: u64) {
    let Some(ContextEnd { mut chunks, _pinning }) = end else { return };
    host_memory::context_ended(context);
    for range in chunks.take_context(context) {
        physical::discard(&range);
    }
    drop(chunks);
    mover::wake();
}
