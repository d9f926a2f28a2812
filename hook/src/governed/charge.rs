//! The steps that all allocations and frees share: reserve, call the driver, record; and in reverse.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::allocations::{Allocation, HandleSpace};
use sluice_hook_core::outcome::{Bypass, Outcome};
use sluice_preempt::command::Work;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::deferred_release::{self, When};
use super::pool_charges;
use crate::counters;
use crate::counters::COUNTERS;
use crate::fork;
use crate::gpu;
use crate::guard::guarded;
use crate::hold_kernel;
use crate::preempt;
use crate::process::{self, ManagedDevice};
use crate::thread_state;

#[derive(Clone, Copy)]
pub(crate) struct AllocationRequest {
    pub(crate) bytes: u64,
    pub(crate) space: HandleSpace,
    /// Whether it ends with the current context. Otherwise it belongs to its handles and mappings.
    pub(crate) in_context: bool,
}

/// Whether an allocation may go to the driver.
enum Admission {
    Reserved(&'static ManagedDevice),
    Uncharged,
    Refused,
}

/// Allocates with `real`, charged to `device`, or to the current device if that is `None`.
///
/// `made` reads the handle that the driver has written, and the real size of the allocation, which may differ from the requested size.
/// `undo` frees the allocation if the difference does not fit.
pub(crate) fn allocate(
    request: AllocationRequest,
    device: Option<i32>,
    real: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> (u64, u64),
    undo: impl FnOnce(u64),
) -> CUresult {
    // The driver may call one allocation function from another; only the outer one is charged.
    thread_state::with_thread(|thread| {
        let Some(_inside) = thread.enter() else {
            counters::count_bypass(Bypass::Nested);
            return real();
        };
        let managed = match guarded(Admission::Uncharged, || reserve(request.bytes, device)) {
            Admission::Uncharged => return preempt::give_gpu_back_for(real),
            Admission::Refused => return CUresult::ERROR_OUT_OF_MEMORY,
            Admission::Reserved(managed) => managed,
        };
        let result = preempt::give_gpu_back_for(real);
        if result != CUresult::SUCCESS {
            guarded((), || managed.memory.release(request.bytes));
            return result;
        }
        let (handle, bytes) = made();
        if guarded(true, || settle(managed, request, handle, bytes)) {
            return result;
        }
        undo(handle);
        CUresult::ERROR_OUT_OF_MEMORY
    })
}

fn reserve(bytes: u64, device: Option<i32>) -> Admission {
    if bytes == 0 {
        return Admission::Uncharged;
    }
    let managed = match device.map_or_else(process::current_device, process::device_of) {
        Ok(managed) => managed,
        Err(reason) => {
            counters::count_bypass(reason);
            return Admission::Uncharged;
        }
    };
    managed.track();
    match reserve_or_trim(managed, bytes) {
        Outcome::Governed(()) => Admission::Reserved(managed),
        Outcome::Bypassed(reason) => {
            counters::count_bypass(reason);
            Admission::Reserved(managed)
        }
        Outcome::Refused => {
            COUNTERS.refused.fetch_add(1, Relaxed);
            Admission::Refused
        }
    }
}

/// Reserves at the manager. Before a refusal counts, the charges of pools are corrected, which may have become smaller. Another thread may
/// have done so at this moment, so it is asked again in any case. If that does not suffice, the pools give back what they do not use.
pub(super) fn reserve_or_trim(managed: &ManagedDevice, bytes: u64) -> Outcome<()> {
    let again = |outcome, frees: fn(&ManagedDevice) -> bool| match outcome {
        Outcome::Refused if frees(managed) => managed.memory.reserve(bytes),
        outcome => outcome,
    };
    let outcome = again(managed.memory.reserve(bytes), |_| pool_charges::refresh());
    again(outcome, pool_charges::trim_unused)
}

/// Records the allocation at its real size; `false` if the part that was not reserved does not fit.
fn settle(managed: &ManagedDevice, request: AllocationRequest, handle: u64, bytes: u64) -> bool {
    let memory = &managed.memory;
    if bytes > request.bytes {
        if let Outcome::Refused = memory.reserve(bytes - request.bytes) {
            COUNTERS.refused.fetch_add(1, Relaxed);
            memory.release(request.bytes);
            return false;
        }
    } else {
        memory.release(request.bytes - bytes);
    }
    let context = if request.in_context { gpu::current_context().unwrap_or(0) } else { 0 };
    let allocation = Allocation { bytes, device: managed.ordinal, context, pool: 0 };
    let replaced = process::allocations().insert(request.space, handle, allocation);
    if let Some(replaced) = replaced {
        release(replaced);
    }
    true
}

/// Frees with `real`, which waits for all work that may use the memory, and releases the charge if that succeeded.
pub(crate) fn free_and_wait(space: HandleSpace, handle: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    let call = |real| {
        hold_kernel::before_wait(true);
        super::sync::blocking(|| preempt::flush_context_before(real))
    };
    free_by(space, handle, real, call, release)
}

/// Frees with `real`, which does not wait for the GPU, and releases the charge if that succeeded.
pub(crate) fn free(space: HandleSpace, handle: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    free_by(space, handle, real, |real| real(), release)
}

/// `cuMemFreeAsync`: the memory is in use until the stream reaches the free. `real` makes the call on a stream: at once, or when the
/// commands before it in a host queue were submitted. Until then the allocation is known and charged.
pub(crate) fn free_in_stream(
    pointer: u64,
    (stream, per_thread): (CUstream, bool),
    real: impl Fn(CUstream) -> CUresult + Copy + Send + Sync + 'static,
) -> CUresult {
    let freed = Cell::new(None);
    let at_call = |on: (CUstream, bool)| {
        let keep = |allocation| freed.set(Some((allocation, on)));
        free_by(HandleSpace::Pointer, pointer, || real(on.0), |real| real(), keep)
    };
    let later = move |on| {
        let release = |allocation| release_behind(allocation, (on, false), When::Later);
        free_by(HandleSpace::Pointer, pointer, || real(on), |real| real(), release)
    };
    let result = preempt::submit_by_value(
        (Some(stream), per_thread),
        || Work::Small,
        || at_call((stream, per_thread)),
        |on| at_call((on, false)),
        || None,
        || Box::new(later),
    );
    // Only here: during the call other submissions wait for the engine, and the release may ask the manager.
    if let Some((allocation, on)) = freed.take() {
        thread_state::with_thread(|thread| {
            let _inside = thread.enter();
            guarded((), || release_behind(allocation, on, When::AtCall));
        });
    }
    result
}

/// Releases the charge of memory that was freed in a stream, once the GPU has reached the free.
fn release_behind(allocation: Allocation, stream: (CUstream, bool), when: When) {
    let managed = process::device_in_use(allocation.device);
    match (managed.filter(|_| allocation.pool == 0), when) {
        (Some(managed), _) => deferred_release::behind_stream(managed, allocation.bytes, stream, when),
        (None, When::AtCall) => release(allocation),
        (None, When::Later) => pool_charges::note_free(),
    }
}

/// The entry is removed first: once the driver has freed the memory, another thread may get the same address.
fn free_by<F: FnOnce() -> CUresult>(
    space: HandleSpace,
    handle: u64,
    real: F,
    call: impl FnOnce(F) -> CUresult,
    release: impl FnOnce(Allocation),
) -> CUresult {
    thread_state::with_thread(|thread| {
        let Some(_inside) = thread.enter() else { return real() };
        if fork::has_forked() {
            return real();
        }
        let taken = guarded(None, || {
            let mut allocations = process::allocations();
            let known = allocations.get(space, handle).is_some();
            known.then(|| allocations.release(space, handle))
        });
        let result = call(real);
        let Some(taken) = taken else { return result };
        guarded((), || match taken {
            _ if result != CUresult::SUCCESS => process::allocations().restore(space, handle, taken),
            Some(allocation) => release(allocation),
            None => {}
        });
        result
    })
}

/// Releases the charge of an allocation on the device that was charged. Memory of a pool is charged until the pool gives it back.
pub(crate) fn release(allocation: Allocation) {
    if allocation.pool != 0 {
        pool_charges::note_free();
        return;
    }
    if let Some(managed) = process::device_in_use(allocation.device) {
        managed.memory.release(allocation.bytes);
    }
}
