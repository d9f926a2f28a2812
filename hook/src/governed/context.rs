//! Contexts: which one is current, and the end of a context with everything in it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::{CUcontext, CUdevice, CUgreenCtx};
use sluice_hook_core::lock;

use super::{context_limit, pool};
use crate::captures::CAPTURES;
use crate::channel_groups;
use crate::gpu;
use crate::guard::{guarded, written};
use crate::hold_kernel;
use crate::known_contexts;
use crate::preempt;
use crate::process;
use crate::real;
use crate::residency;
use crate::settings;
use crate::thread_state;

/// Functions after which another context may be current.
pub(crate) fn changes_current(real: impl FnOnce() -> CUresult) -> CUresult {
    let result = real();
    thread_state::with_thread(|thread| thread.forget());
    result
}

/// `cuCtxCreate` and similar functions, after which the new context is current.
pub(crate) fn create(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let result = make(device, real);
    if result == CUresult::SUCCESS {
        guarded(None, gpu::current_context).into_iter().for_each(known_contexts::add);
    }
    result
}

/// `cuGreenCtxCreate`.
pub(crate) fn create_green(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    make(device, real)
}

/// Functions that make a context on a device: channel groups allocated during the call belong to that device.
pub(super) fn make(device: CUdevice, real: impl FnOnce() -> CUresult) -> CUresult {
    let (result, has_new_groups) = channel_groups::with_context_creation(device, || changes_current(real));
    if has_new_groups {
        process::wake_trackers();
    }
    if result == CUresult::SUCCESS {
        process::note_context(device);
    }
    result
}

/// Uses of contexts besides the one with which each was made (`cuCtxAttach`).
static ATTACHED: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

/// `cuCtxAttach`: one more use of the current context.
///
/// # Safety
/// `context` is null or writable. If `real` succeeds, it has written `context` unless it is null.
pub(crate) unsafe fn attach(context: *mut CUcontext, real: impl FnOnce() -> CUresult) -> CUresult {
    // With the lock held: a `cuCtxDetach` of another thread must find the use as soon as the driver counts it.
    let attached = settings::check_governed().is_ok().then(|| lock(&ATTACHED));
    let result = changes_current(real);
    if let Some(mut attached) = attached.filter(|_| result == CUresult::SUCCESS) {
        // SAFETY: null or written: the driver has succeeded.
        let context = unsafe { written(context) }.map(|context| context.expose_provenance() as u64);
        guarded((), || {
            if let Some(context) = context.or_else(gpu::current_context) {
                *attached.entry(context).or_default() += 1;
            }
        });
    }
    result
}

/// `cuCtxDetach`: ends one use of a context, and with the last one the context.
pub(crate) fn detach(context: CUcontext, real: impl FnOnce() -> CUresult) -> CUresult {
    if settings::check_governed().is_ok() {
        let mut attached = lock(&ATTACHED);
        if let Some(others) =
            attached.get_mut(&(context.expose_provenance() as u64)).filter(|others| **others > 0)
        {
            *others -= 1;
            // With the lock held: the call of another thread, which may be the last one, must not overtake this one.
            return changes_current(real);
        }
    }
    destroy(context, real)
}

/// `cuCtxDestroy` and similar functions.
pub(crate) fn destroy(context: CUcontext, real: impl FnOnce() -> CUresult) -> CUresult {
    let context = context.expose_provenance() as u64;
    ending(context, true, real, has_ended)
}

/// `cuGreenCtxDestroy`.
pub(crate) fn destroy_green(green: CUgreenCtx, real: impl FnOnce() -> CUresult) -> CUresult {
    let mut context = std::ptr::null_mut();
    if let Some(get) = real::table().cuCtxFromGreenCtx {
        // SAFETY: the program passes the handle of a green context; `context` is writable.
        let _found = unsafe { get(&raw mut context, green) };
    }
    // The memory of a green context belongs to its device, except for what its limits add.
    let context = context.expose_provenance() as u64;
    ending(context, false, real, has_ended)
}

/// Whether a call that ends a context has ended it. The driver documents that such calls may also return the error of an earlier
/// launch; the context has ended all the same.
pub(super) fn has_ended(result: CUresult) -> bool {
    const OF_EARLIER_LAUNCHES: [CUresult; 10] = [
        CUresult::ERROR_ECC_UNCORRECTABLE,
        CUresult::ERROR_ILLEGAL_ADDRESS,
        CUresult::ERROR_LAUNCH_TIMEOUT,
        CUresult::ERROR_ASSERT,
        CUresult::ERROR_HARDWARE_STACK_ERROR,
        CUresult::ERROR_ILLEGAL_INSTRUCTION,
        CUresult::ERROR_MISALIGNED_ADDRESS,
        CUresult::ERROR_INVALID_ADDRESS_SPACE,
        CUresult::ERROR_INVALID_PC,
        CUresult::ERROR_LAUNCH_FAILED,
    ];
    result == CUresult::SUCCESS || OF_EARLIER_LAUNCHES.contains(&result)
}

/// Calls `real`, which may end the context, while no thread of the hook uses its streams or events. If `ended`, they are forgotten. With
/// `ends_memory` the memory that was allocated in the context ends with it, and its charge is released.
pub(super) fn ending(
    context: u64,
    ends_memory: bool,
    real: impl FnOnce() -> CUresult,
    ended: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    if settings::check_governed().is_err() || context == 0 {
        return changes_current(real);
    }
    // Memory that is away has its places on the host by the order of all chunks.
    let _on_gpu = residency::enter();
    preempt::begin_context_end(context);
    let chunks = guarded(None, residency::begin_context_end);
    let guards: Vec<_> =
        guarded(Vec::new(), || process::devices().map(|managed| managed.device.lock_contexts()).collect());
    let held = guarded(None, || Some(hold_kernel::begin_context_end(context)));
    let result = changes_current(|| super::sync::blocking_all(real));
    let ended = ended(result);
    if ended {
        known_contexts::remove(context);
        guarded((), || preempt::finish_context_end(context));
        guarded((), || {
            held.into_iter().for_each(hold_kernel::ContextEnd::ended);
            lock(&ATTACHED).remove(&context);
            CAPTURES.end_context(context);
            for managed in process::devices() {
                managed.device.forget_context(context);
                managed.device.driver.forget_context(context);
            }
        });
    } else {
        preempt::cancel_context_end(context);
    }
    drop(guards);
    if ended {
        guarded((), || residency::context_ended(chunks, context));
        guarded((), || context_limit::end_context(context));
    }
    if ended && ends_memory {
        guarded((), || {
            let freed = process::allocations().remove_context(context);
            for (device, bytes) in freed {
                if let Some(managed) = process::device_in_use(device) {
                    managed.memory.release(bytes);
                }
            }
            // The context's end has waited for its work, so pools may have become smaller.
            pool::refresh();
        });
    }
    result
}
