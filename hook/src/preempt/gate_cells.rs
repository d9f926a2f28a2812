//! Memory of stream gates: cells in the hook's own pages, which are registered with a context, and which of the cells
//! are free.
//!
//! A page stays registered until its context ends, even if the driver then refused the gate. To unregister a page,
//! the driver waits for all work of the context, and so for streams that stand at gates of other pages.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::ids::{Code, Context};
use sluice_sys::page::{SharedPage, WORDS};

use super::own_calls::{code, within};
use crate::{gpu, real};

const PAGE: usize = WORDS * 8;
const NOT_SUPPORTED: &CStr = c"the driver has no stream memory operations";
const NOT_REGISTERED: &CStr = c"the driver does not map memory of the host for this context";
const NO_MEMORY: &CStr = c"there is no memory for gates";
const NOT_NOW: &CStr = c"the driver makes no gates at the moment";

/// The words of one stream's gates, in a cache line of their own.
#[repr(C, align(64))]
pub(super) struct GateCell {
    pub(super) word: AtomicU32,
    pub(super) arrived: AtomicU32,
    pub(super) passed: AtomicU32,
    /// The last gate placed; written by the host only.
    pub(super) placed: AtomicU32,
}

/// Cells of a page for streams. Behind them is one whose gate is tried when the page is registered; that gate may
/// still be in progress when streams use theirs.
const CELLS: usize = PAGE / size_of::<GateCell>() - 1;

/// Offsets in a cell, in bytes.
const WORD: u64 = 0;
const ARRIVED: u64 = 4;
const PASSED: u64 = 8;

/// One stream's cell, with its host and GPU addresses.
#[derive(Clone, Copy)]
pub(super) struct GateSlot {
    pub(super) cell: &'static GateCell,
    pub(super) device: CUdeviceptr,
}

/// A page that is registered with a context, and its GPU address.
#[derive(Clone, Copy)]
struct Registered {
    page: usize,
    device: CUdeviceptr,
}

/// Why the streams of a context get no gates.
#[derive(Debug, Clone, Copy)]
enum GateRefusal {
    /// The driver lacks a function that gates need.
    Permanent(&'static CStr),
    /// A later attempt may succeed.
    Temporary(&'static CStr),
}

impl GateRefusal {
    /// Classifies an error of the driver. Errors that are not known to be permanent count as temporary.
    fn of(Code(answer): Code, for_good: &'static CStr) -> Self {
        match CUresult(answer) {
            CUresult::ERROR_NOT_SUPPORTED | CUresult::ERROR_INVALID_VALUE | CUresult::ERROR_NOT_PERMITTED => {
                Self::Permanent(for_good)
            }
            CUresult::ERROR_OUT_OF_MEMORY => Self::Temporary(NO_MEMORY),
            _ => Self::Temporary(NOT_NOW),
        }
    }
}

/// See the module. All maps are by context.
#[derive(Default)]
pub(super) struct GateAllocator {
    /// Cells that no stream uses.
    free: BTreeMap<u64, Vec<GateSlot>>,
    /// Pages that are registered.
    pages: BTreeMap<u64, Vec<usize>>,
    /// The registered page whose gate the driver has not accepted yet.
    untried: BTreeMap<u64, Registered>,
    /// Permanent refusals and their reasons.
    refused: BTreeMap<u64, &'static CStr>,
    /// Pages of contexts that have ended.
    unused: Vec<usize>,
}

impl GateAllocator {
    /// Takes a cell that the GPU no longer uses.
    pub(super) fn take(&mut self, context: Context) -> Result<GateSlot, &'static CStr> {
        if let Some(reason) = self.refused.get(&context.0) {
            return Err(reason);
        }
        // A destroyed stream may still have to pass gates: its last writes would be taken for those of the next
        // owner.
        let is_through = |slot: &GateSlot| slot.cell.passed.load(Acquire) == slot.cell.placed.load(Acquire);
        let free = self.free.entry(context.0).or_default();
        if let Some(at) = free.iter().position(is_through) {
            return Ok(free.swap_remove(at));
        }
        match self.add_page(context) {
            Ok(slot) => Ok(slot),
            Err(GateRefusal::Temporary(reason)) => Err(reason),
            Err(GateRefusal::Permanent(reason)) => {
                self.refused.insert(context.0, reason);
                Err(reason)
            }
        }
    }

    /// Returns a cell that no stream uses any more.
    pub(super) fn give_back(&mut self, context: Context, slot: GateSlot) {
        self.free.entry(context.0).or_default().push(slot);
    }

    /// Forgets a context that has ended, and its registrations with it.
    pub(super) fn forget_context(&mut self, context: u64) {
        self.free.remove(&context);
        self.untried.remove(&context);
        self.refused.remove(&context);
        self.unused.extend(self.pages.remove(&context).unwrap_or_default());
    }

    /// Makes the GPU pass one gate in a new page. Returns one of the page's cells; the others become free.
    fn add_page(&mut self, context: Context) -> Result<GateSlot, GateRefusal> {
        let Registered { page, device } = match self.untried.get(&context.0) {
            Some(registered) => *registered,
            None => self.register(context)?,
        };
        cell(page, CELLS).word.store(0, Release);
        let tried = device + (CELLS * size_of::<GateCell>()) as u64;
        within(context, || try_out(&mut gate_operations(tried, 0)))
            .map_err(|answer| GateRefusal::of(answer, NOT_SUPPORTED))?;
        self.untried.remove(&context.0);
        let slot =
            |at| GateSlot { cell: cell(page, at), device: device + (at * size_of::<GateCell>()) as u64 };
        self.free.entry(context.0).or_default().extend((1..CELLS).map(slot));
        Ok(slot(0))
    }

    fn register(&mut self, context: Context) -> Result<Registered, GateRefusal> {
        let page = match self.unused.pop() {
            Some(page) => page,
            None => {
                let page = SharedPage::anonymous().map_err(|_| GateRefusal::Temporary(NO_MEMORY))?;
                Box::leak(Box::new(page)).words().as_ptr().expose_provenance()
            }
        };
        let host = std::ptr::with_exposed_provenance_mut(page);
        // SAFETY: the page is ours, whole and never unmapped.
        if let Err(answer) = within(context, || code(unsafe { gpu::register_page(host, PAGE) })) {
            self.unused.push(page);
            return Err(GateRefusal::of(answer, NOT_REGISTERED));
        }
        self.pages.entry(context.0).or_default().push(page);
        let device = within(context, || gpu::page_address(host).map_err(|error| Code(error.0)))
            .map_err(|answer| GateRefusal::of(answer, NOT_REGISTERED))?;
        let registered = Registered { page, device };
        self.untried.insert(context.0, registered);
        Ok(registered)
    }
}

fn cell(page: usize, at: usize) -> &'static GateCell {
    let cell = std::ptr::with_exposed_provenance::<GateCell>(page + at * size_of::<GateCell>());
    // SAFETY: pages are ours, whole, aligned and never unmapped; every pattern is a cell, which holds atomics only.
    unsafe { &*cell }
}

/// The GPU's operations at gate `number` of the cell at `device`. The writes include a fence: the second version of
/// the call takes none without, and drivers no longer take the first version. The GPU therefore reports its arrival
/// once the kernels in front are done. On an H200 the three operations take 3.6 µs, the wait alone 2.2 µs.
pub(super) fn gate_operations(device: CUdeviceptr, number: u32) -> [Operation; 3] {
    [
        Operation::new(WRITE, device + ARRIVED, number, CU_STREAM_WRITE_VALUE_DEFAULT),
        Operation::new(WAIT, device + WORD, number, CU_STREAM_WAIT_VALUE_GEQ),
        Operation::new(WRITE, device + PASSED, number, CU_STREAM_WRITE_VALUE_DEFAULT),
    ]
}

/// Kinds of operations of a batch (`CUstreamBatchMemOpType`).
const WAIT: u32 = 1;
const WRITE: u32 = 2;

/// Whether the driver accepts these operations, on a temporary stream in the current context.
fn try_out(operations: &mut [Operation]) -> Result<(), Code> {
    const MISSING: Code = Code(CUresult::ERROR_NOT_SUPPORTED.0);
    let table = real::table();
    let (create, destroy) = (table.cuStreamCreate.ok_or(MISSING)?, table.cuStreamDestroy_v2.ok_or(MISSING)?);
    let mut stream = std::ptr::null_mut();
    // SAFETY: `stream` is writable, and then a stream of the current context.
    unsafe {
        code(create(&raw mut stream, CU_STREAM_NON_BLOCKING))?;
        let taken = batch(stream, operations);
        let _destroyed = destroy(stream);
        taken
    }
}

/// One operation of a batch, in the driver's layout (`CUstreamBatchMemOpParams`).
#[repr(C)]
pub(super) struct Operation {
    kind: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    rest: u64,
}

const _: () = assert!(size_of::<Operation>() == 48);

impl Operation {
    fn new(kind: u32, address: u64, value: u32, flags: u32) -> Self {
        Self { kind, address, value: value.into(), flags, alias: 0, rest: 0 }
    }
}

/// Submits operations to a stream as one batch.
pub(super) fn batch(stream: CUstream, operations: &mut [Operation]) -> Result<(), Code> {
    let table = real::table();
    let Some(make) = table.cuStreamBatchMemOp_v2 else { return Err(Code(CUresult::ERROR_NOT_SUPPORTED.0)) };
    let count = u32::try_from(operations.len()).unwrap_or(0);
    // SAFETY: so many operations are readable and writable; the stream is alive.
    code(unsafe { make(stream, count, operations.as_mut_ptr().cast(), 0) })
}
