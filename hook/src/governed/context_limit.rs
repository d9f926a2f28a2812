//! Limits of a context that take GPU memory (`cuCtxSetLimit`): the stack of each thread, of which the GPU has one for all threads that it can
//! run at once, and the heap of kernels. The memory of the initial limits is a part of the context; what a call adds is charged.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{Allocation, HandleSpace};
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Outcome;

use super::{charge, guarded, sync};
use crate::gpu;
use crate::process::{self, COUNTERS, ManagedDevice};

/// A change of a limit in a context.
#[derive(Clone, Copy)]
struct Change {
    managed: &'static ManagedDevice,
    context: u64,
    limit: CUlimit,
    space: HandleSpace,
    /// How often the GPU has what the limit bounds.
    number: u64,
    /// The limit before the call, in bytes.
    before: u64,
}

/// Held during a change: the limit that the driver reports before and after it tells what it adds.
static CHANGING: Mutex<()> = Mutex::new(());

/// `cuCtxSetLimit`.
pub(crate) fn set(limit: CUlimit, value: usize, real: impl FnOnce() -> CUresult) -> CUresult {
    let call = || sync::may_wait(real);
    if process::check_governed().is_err() {
        return call();
    }
    let _alone = lock(&CHANGING);
    let Some(change) = guarded(None, || Change::of(limit)) else { return call() };
    let reserved = change.bytes(change.before, value as u64);
    if !guarded(true, || change.reserve(reserved)) {
        COUNTERS.refused.fetch_add(1, Relaxed);
        return CUresult::ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    guarded((), || change.settle(reserved));
    result
}

impl Change {
    /// `None` if the limit takes no memory, or if nothing is charged.
    fn of(limit: CUlimit) -> Option<Self> {
        let space = match limit {
            CU_LIMIT_STACK_SIZE => HandleSpace::Stack,
            CU_LIMIT_MALLOC_HEAP_SIZE => HandleSpace::Heap,
            _ => return None,
        };
        let managed = process::current_device().inspect_err(|reason| process::count_bypass(*reason)).ok()?;
        let device = managed.ordinal.cast_signed();
        let number = if limit == CU_LIMIT_STACK_SIZE { gpu::resident_threads(device)? } else { 1 };
        Some(Self {
            managed,
            context: gpu::current_context()?,
            limit,
            space,
            number,
            before: gpu::limit(limit)?,
        })
    }

    /// Bytes that the limit takes more at `to` than at `from`.
    fn bytes(&self, from: u64, to: u64) -> u64 {
        to.saturating_sub(from).saturating_mul(self.number)
    }

    fn reserve(&self, bytes: u64) -> bool {
        // A client above its limit may lower what it has.
        if bytes == 0 {
            return true;
        }
        self.managed.track();
        match charge::reserve_or_trim(self.managed, bytes) {
            Outcome::Governed(()) => {}
            Outcome::Bypassed(reason) => process::count_bypass(reason),
            Outcome::Refused => return false,
        }
        true
    }

    /// Records what the limit takes now, as the driver reports it, and releases the rest of the reservation.
    fn settle(&self, reserved: u64) {
        let now = gpu::limit(self.limit).unwrap_or(self.before);
        let mut allocations = process::allocations();
        let charged = allocations.get(self.space, self.context).map_or(0, |known| known.bytes);
        let paid = charged.saturating_add(reserved);
        let added = charged.saturating_add(self.bytes(self.before, now));
        // The driver may round the limit up a little.
        let bytes = added.saturating_sub(self.bytes(now, self.before)).min(paid);
        let allocation = Allocation { bytes, device: self.managed.ordinal, context: self.context, pool: 0 };
        let _charged_before = allocations.insert(self.space, self.context, allocation);
        drop(allocations);
        self.managed.memory.release(paid - bytes);
    }
}
