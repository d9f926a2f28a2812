//! Stream gates: for each stream a word for which the GPU waits, and two in which the GPU writes its progress.
//!
//! The words are in the hook's own pages, registered with the context and never unmapped. A store therefore opens a
//! closed gate whatever becomes of the context, and a child process shares the page.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Mutex, PoisonError, RwLock};

use sluice_hook_core::lock;
use sluice_preempt::driver::{GateProgress, StreamGates};
use sluice_preempt::ids::{Code, Context, Stream};

use super::gate_cells::{GateAllocator, GateSlot, batch, gate_operations};
use super::own_calls::within;
use crate::gpu::pointer;

#[derive(Default)]
pub(crate) struct HostGates {
    /// Whether any stream got a cell: only then can the engine ask for a gate.
    used: AtomicU8,
    slots: RwLock<BTreeMap<(u64, u64), GateSlot>>,
    allocator: Mutex<GateAllocator>,
}

impl std::fmt::Debug for HostGates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostGates").finish_non_exhaustive()
    }
}

impl HostGates {
    pub(super) fn usable(&self) -> Option<&dyn StreamGates> {
        (self.used.load(Acquire) != 0).then_some(self as &dyn StreamGates)
    }

    /// Gives the stream a cell if it has none. Returns the reason if that is not possible.
    pub(super) fn prepare(&self, stream: Stream) -> Result<(), &'static CStr> {
        if self.slot(stream).is_some() {
            return Ok(());
        }
        let slot = lock(&self.allocator).take(stream.context)?;
        slot.cell.arrived.store(0, Relaxed);
        slot.cell.passed.store(0, Relaxed);
        slot.cell.placed.store(0, Release);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.insert((stream.context.0, stream.handle), slot);
        self.used.store(1, Release);
        Ok(())
    }

    /// Whether streams of the context can have gates; returns the reason if not.
    pub(super) fn probe(&self, context: Context) -> Result<(), &'static CStr> {
        let mut allocator = lock(&self.allocator);
        allocator.take(context).map(|slot| allocator.give_back(context, slot))
    }

    /// The stream is about to be destroyed.
    pub(super) fn free(&self, stream: Stream) {
        let key = (stream.context.0, stream.handle);
        let slot = self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        if let Some(slot) = slot {
            lock(&self.allocator).give_back(stream.context, slot);
        }
    }

    /// Forgets a context that has ended, and its registrations with it.
    pub(super) fn forget_context(&self, context: u64) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| *of != context);
        lock(&self.allocator).forget_context(context);
    }

    fn slot(&self, stream: Stream) -> Option<GateSlot> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&(stream.context.0, stream.handle)).copied()
    }
}

impl StreamGates for HostGates {
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code> {
        let Some(slot) = self.slot(stream) else { return Err(Code::INVALID_HANDLE) };
        within(stream.context, || batch(pointer(stream.handle), &mut gate_operations(slot.device, number)))?;
        slot.cell.placed.store(number, Release);
        Ok(())
    }

    fn store_word(&self, stream: Stream, word: u32) {
        if let Some(slot) = self.slot(stream) {
            slot.cell.word.store(word, Release);
        }
    }

    fn progress(&self, stream: Stream) -> GateProgress {
        match self.slot(stream) {
            Some(GateSlot { cell, .. }) => {
                // `passed` is read first: it must not appear ahead of `arrived`.
                let passed = cell.passed.load(Acquire);
                GateProgress { arrived: cell.arrived.load(Acquire), passed }
            }
            None => GateProgress { arrived: 0, passed: 0 },
        }
    }
}
