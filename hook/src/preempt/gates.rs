//! Gates: for each stream a word that the GPU waits for, and two in which it says how far it has come.
//!
//! The words are in pages of ours that are registered with the context and never unmapped: a shut gate can be opened by a store,
//! whatever becomes of the context, and a child process shares the page.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::driver::{Gate, Progress};
use sluice_preempt::ids::{Code, Context, Stream};
use sluice_sys::page::{SharedPage, WORDS};

use super::code;
use super::driver::within;
use super::memops::{Operation, WAIT, WRITE, batch, try_out};
use crate::gpu::pointer;
use crate::real;

const PAGE: usize = WORDS * 8;
const REGISTER_DEVICEMAP: c_uint = 2;
const NOT_SUPPORTED: &CStr = c"the driver has no stream memory operations";
const NOT_REGISTERED: &CStr = c"the driver does not map memory of the host for this context";
const NO_MEMORY: &CStr = c"the system has no memory for gates";

/// What the GPU waits for and writes, away from other streams' lines.
#[repr(C, align(64))]
struct Cell {
    word: AtomicU32,
    arrived: AtomicU32,
    passed: AtomicU32,
    /// The last gate that was placed; the host's.
    placed: AtomicU32,
}

/// A page's cells for streams. Behind them is one whose gate is tried when the page is registered, which may still be on its way then.
const CELLS: usize = PAGE / size_of::<Cell>() - 1;

/// Where each number is in a cell, in bytes.
const WORD: u64 = 0;
const ARRIVED: u64 = 4;
const PASSED: u64 = 8;

/// One stream's cell, as the host and as the GPU see it.
#[derive(Clone, Copy)]
struct Slot {
    cell: &'static Cell,
    device: CUdeviceptr,
}

#[derive(Default)]
struct Contexts {
    /// Cells that no stream uses.
    free: BTreeMap<u64, Vec<Slot>>,
    /// Pages that were registered, by context.
    pages: BTreeMap<u64, Vec<usize>>,
    /// Pages of contexts that are gone.
    unused: Vec<usize>,
    refused: BTreeMap<u64, &'static CStr>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Gates {
    /// Whether any stream was given a cell: only then can the engine ask for a gate.
    used: AtomicU8,
    slots: RwLock<BTreeMap<(u64, u64), Slot>>,
    contexts: Mutex<Contexts>,
}

impl std::fmt::Debug for Gates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gates").finish_non_exhaustive()
    }
}

impl Gates {
    /// For the engine, if there are gates.
    pub(super) fn usable(&self) -> Option<&dyn Gate> {
        (self.used.load(Acquire) != 0).then_some(self as &dyn Gate)
    }

    /// Gives the stream a cell, if it has none; the reason if it cannot have one.
    pub(super) fn prepare(&self, stream: Stream) -> Result<(), &'static CStr> {
        if self.slot(stream).is_some() {
            return Ok(());
        }
        let mut contexts = self.contexts();
        let slot = contexts.take(stream.context)?;
        slot.cell.arrived.store(0, Relaxed);
        slot.cell.passed.store(0, Relaxed);
        slot.cell.placed.store(0, Release);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.insert((stream.context.0, stream.handle), slot);
        self.used.store(1, Release);
        Ok(())
    }

    /// Whether streams of the context can have gates; the reason if not.
    pub(super) fn probe(&self, context: Context) -> Result<(), &'static CStr> {
        let mut contexts = self.contexts();
        let slot = contexts.take(context)?;
        contexts.free.entry(context.0).or_default().push(slot);
        Ok(())
    }

    /// The stream is about to be destroyed.
    pub(super) fn free(&self, stream: Stream) {
        let key = (stream.context.0, stream.handle);
        let slot = self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        if let Some(slot) = slot {
            self.contexts().free.entry(stream.context.0).or_default().push(slot);
        }
    }

    /// The context is gone, and its registrations with it.
    pub(super) fn forget_context(&self, context: u64) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| *of != context);
        let mut contexts = self.contexts();
        contexts.free.remove(&context);
        contexts.refused.remove(&context);
        let pages = contexts.pages.remove(&context).unwrap_or_default();
        contexts.unused.extend(pages);
    }

    fn slot(&self, stream: Stream) -> Option<Slot> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&(stream.context.0, stream.handle)).copied()
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contexts {
    /// A cell that the GPU is through with.
    fn take(&mut self, context: Context) -> Result<Slot, &'static CStr> {
        if let Some(reason) = self.refused.get(&context.0) {
            return Err(reason);
        }
        // A stream that was destroyed may still have to pass gates: its last writes would be taken for another's.
        let is_through = |slot: &Slot| slot.cell.passed.load(Acquire) == slot.cell.placed.load(Acquire);
        let free = self.free.entry(context.0).or_default();
        if let Some(at) = free.iter().position(is_through) {
            return Ok(free.swap_remove(at));
        }
        let added = self.add_page(context);
        if let Err(reason) = added {
            self.refused.insert(context.0, reason);
            return Err(reason);
        }
        self.free.entry(context.0).or_default().pop().ok_or(NO_MEMORY)
    }

    fn add_page(&mut self, context: Context) -> Result<(), &'static CStr> {
        let page = match self.unused.pop() {
            Some(page) => page,
            None => {
                let page = Box::leak(Box::new(SharedPage::anonymous().map_err(|_| NO_MEMORY)?));
                page.words().as_ptr().expose_provenance()
            }
        };
        match within(context, || register(page)) {
            Ok(device) => {
                self.pages.entry(context.0).or_default().push(page);
                let cells = (0..CELLS).map(|at| Slot {
                    cell: cell(page, at),
                    device: device + (at * size_of::<Cell>()) as u64,
                });
                self.free.entry(context.0).or_default().extend(cells);
                Ok(())
            }
            Err(Code(refused)) => {
                self.unused.push(page);
                Err(if refused == CUresult::ERROR_NOT_SUPPORTED.0 { NOT_SUPPORTED } else { NOT_REGISTERED })
            }
        }
    }
}

fn cell(page: usize, at: usize) -> &'static Cell {
    let cell = std::ptr::with_exposed_provenance::<Cell>(page + at * size_of::<Cell>());
    // SAFETY: pages are ours, whole, aligned and never unmapped; every pattern is a cell, which holds atomics only.
    unsafe { &*cell }
}

/// What the GPU does at gate `number` of the cell at `device`. The writes have a fence, since the second version of the call takes none
/// without (and drivers no longer take its first version); so the GPU says that it is at a gate once the kernels in front are done.
/// On an H200 the three take 3.6 µs, the wait alone 2.2.
fn gate(device: CUdeviceptr, number: u32) -> [Operation; 3] {
    [
        Operation::new(WRITE, device + ARRIVED, number, CU_STREAM_WRITE_VALUE_DEFAULT),
        Operation::new(WAIT, device + WORD, number, CU_STREAM_WAIT_VALUE_GEQ),
        Operation::new(WRITE, device + PASSED, number, CU_STREAM_WRITE_VALUE_DEFAULT),
    ]
}

/// Registers a page with the current context and has the GPU pass a gate there; its address on the GPU.
fn register(page: usize) -> Result<CUdeviceptr, Code> {
    const MISSING: Code = Code(CUresult::ERROR_NOT_SUPPORTED.0);
    let table = real::table();
    let (register, unregister) =
        (table.cuMemHostRegister_v2.ok_or(MISSING)?, table.cuMemHostUnregister.ok_or(MISSING)?);
    let get = table.cuMemHostGetDevicePointer_v2.ok_or(MISSING)?;
    let tried = CELLS * size_of::<Cell>();
    cell(page, CELLS).word.store(0, Release);
    let page = std::ptr::with_exposed_provenance_mut(page);
    let mut device = 0;
    // SAFETY: the page is ours, whole and never unmapped; `device` is writable.
    unsafe {
        code(register(page, PAGE, REGISTER_DEVICEMAP))?;
        let works = code(get(&raw mut device, page, 0)).and_then(|()| {
            // Whatever it says against them, it has not these operations.
            try_out(&mut gate(device + tried as u64, 0)).map_err(|_| MISSING)
        });
        if works.is_err() {
            let _unregistered = unregister(page);
        }
        works.map(|()| device)
    }
}

impl Gate for Gates {
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code> {
        let Some(slot) = self.slot(stream) else { return Err(Code::INVALID_HANDLE) };
        within(stream.context, || batch(pointer(stream.handle), &mut gate(slot.device, number)))?;
        slot.cell.placed.store(number, Release);
        Ok(())
    }

    fn store(&self, stream: Stream, word: u32) {
        if let Some(slot) = self.slot(stream) {
            slot.cell.word.store(word, Release);
        }
    }

    fn progress(&self, stream: Stream) -> Progress {
        match self.slot(stream) {
            Some(Slot { cell, .. }) => {
                // The later one first: passed must not be seen ahead of arrived.
                let passed = cell.passed.load(Acquire);
                Progress { arrived: cell.arrived.load(Acquire), passed }
            }
            None => Progress { arrived: 0, passed: 0 },
        }
    }
}
