//! Limits of a context that take GPU memory (`cuCtxSetLimit`): the stack of each thread, of which the GPU has one for all
//! threads that it can run at once, and the heap of kernels. The memory of the initial limits is a part of the context. What
//! exceeds it is charged.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::{Allocation, HandleSpace};
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Outcome;

use super::charge;
use crate::counters;
use crate::counters::COUNTERS;
use crate::gpu;
use crate::guard::guarded;
use crate::hold_kernel;
use crate::process::{self, ManagedDevice};
use crate::settings;

/// A change of a limit in a context.
#[derive(Clone, Copy)]
struct Change {
    managed: &'static ManagedDevice,
    context: u64,
    limit: CUlimit,
    space: HandleSpace,
    /// How often the GPU has what the limit bounds.
    number: u64,
    /// The limit before the first call, in bytes.
    initial: u64,
}

/// The limits before the first call that changes them, in bytes.
static INITIAL: Mutex<BTreeMap<(HandleSpace, u64), u64>> = Mutex::new(BTreeMap::new());

/// `cuCtxSetLimit`.
pub(crate) fn set(limit: CUlimit, value: usize, real: impl FnOnce() -> CUresult) -> CUresult {
    let call = || hold_kernel::may_wait(real);
    let space = match limit {
        CU_LIMIT_STACK_SIZE => HandleSpace::Stack,
        CU_LIMIT_MALLOC_HEAP_SIZE => HandleSpace::Heap,
        _ => return call(),
    };
    if settings::check_governed().is_err() {
        return call();
    }
    let Some(change) = guarded(None, || Change::of(limit, space)) else { return call() };
    // The limit that the driver reports after the call must be this call's.
    let _alone = lock(&change.managed.changing_limit);
    let reserved = change.bytes(value as u64).saturating_sub(change.charged());
    if !guarded(true, || change.reserve(reserved)) {
        COUNTERS.refused.fetch_add(1, Relaxed);
        return CUresult::ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    guarded((), || change.settle(reserved));
    result
}

/// A context has ended, also a green one: releases what its limits added.
pub(super) fn end_context(context: u64) {
    for space in [HandleSpace::Stack, HandleSpace::Heap] {
        lock(&INITIAL).remove(&(space, context));
        let charged = process::allocations().release(space, context);
        charged.into_iter().for_each(charge::release);
    }
}

impl Change {
    /// `None` if nothing is charged.
    fn of(limit: CUlimit, space: HandleSpace) -> Option<Self> {
        let managed = process::current_device().inspect_err(|reason| counters::count_bypass(*reason)).ok()?;
        let device = managed.ordinal.cast_signed();
        let number = if space == HandleSpace::Stack { gpu::resident_threads(device)? } else { 1 };
        let context = gpu::current_context()?;
        let now = gpu::limit(limit)?;
        // Each call reads the limit and stores it here before it changes it, so the first value stored is the initial one.
        let initial = *lock(&INITIAL).entry((space, context)).or_insert(now);
        Some(Self { managed, context, limit, space, number, initial })
    }

    /// Bytes that the limit takes at `value`, besides those of the context.
    fn bytes(&self, value: u64) -> u64 {
        value.saturating_sub(self.initial).saturating_mul(self.number)
    }

    fn charged(&self) -> u64 {
        process::allocations().get(self.space, self.context).map_or(0, |known| known.bytes)
    }

    fn reserve(&self, bytes: u64) -> bool {
        // A client above its limit may lower what it has.
        if bytes == 0 {
            return true;
        }
        self.managed.track();
        match charge::reserve_or_trim(self.managed, bytes) {
            Outcome::Governed(()) => {}
            Outcome::Bypassed(reason) => counters::count_bypass(reason),
            Outcome::Refused => return false,
        }
        true
    }

    /// Records what the limit takes now, as the driver reports it, and releases the rest of the reservation.
    fn settle(&self, reserved: u64) {
        let charged = self.charged();
        let paid = charged.saturating_add(reserved);
        // The driver may round the limit up a little.
        let bytes = gpu::limit(self.limit).map_or(charged, |now| self.bytes(now).min(paid));
        let allocation = Allocation { bytes, device: self.managed.ordinal, context: self.context, pool: 0 };
        let _charged_before = process::allocations().insert(self.space, self.context, allocation);
        self.managed.memory.release(paid - bytes);
    }
}
