//! Driver calls of the hook's own on behalf of the engine, and results as driver and engine represent them.

use std::cell::Cell;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::ids::{Code, Context};

use crate::{gpu, real};

thread_local! {
    /// The thread makes a driver call of the hook's own. What the driver calls during it does not come from the
    /// program.
    static IN_OWN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread makes a driver call of the hook's own.
pub(super) fn is_own_call() -> bool {
    IN_OWN_CALL.get()
}

/// Makes a driver call of the hook's own: calls that the driver makes during it are not the program's.
pub(super) fn as_own_call<R>(call: impl FnOnce() -> R) -> R {
    with_own_call(true, call)
}

/// Runs a function of the program on a thread of the hook: driver calls during it are the program's.
pub(super) fn as_program_call<R>(call: impl FnOnce() -> R) -> R {
    with_own_call(false, call)
}

/// Runs `call`. `own` decides whether the driver calls made during it count as the hook's own.
fn with_own_call<R>(own: bool, call: impl FnOnce() -> R) -> R {
    let before = IN_OWN_CALL.replace(own);
    let result = call();
    IN_OWN_CALL.set(before);
    result
}

/// The driver's result as the engine represents it.
pub(super) fn code(result: CUresult) -> Result<(), Code> {
    if result == CUresult::SUCCESS { Ok(()) } else { Err(Code(result.0)) }
}

/// The engine's result as the driver represents it.
pub(super) fn status(result: Result<(), Code>) -> CUresult {
    result.map_or_else(|Code(code)| CUresult(code), |()| CUresult::SUCCESS)
}

/// Calls a driver function that may be missing.
macro_rules! ask {
    ($function:ident($($argument:expr),*)) => {
        match real::table().$function {
            // SAFETY: handles are alive during the call: the engine keeps those that it uses, the hook its own; out-pointers are local.
            Some(function) => code(unsafe { function($($argument),*) }),
            None => Err(Code(CUresult::ERROR_NOT_FOUND.0)),
        }
    };
}

pub(super) use ask;

/// Makes a call of the hook's own with the context current.
pub(super) fn within<T>(context: Context, call: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    as_own_call(|| gpu::with_context(context.0, call)).unwrap_or(Err(Code(CUresult::ERROR_INVALID_CONTEXT.0)))
}

/// Makes later work of `follower` wait for earlier work of `leader`. If the driver refuses an event for it, the calling
/// thread waits for `leader`. An error means that the order is not ensured.
pub(super) fn follow(follower: CUstream, leader: CUstream) -> Result<(), Code> {
    let mut event = std::ptr::null_mut();
    let ordered = ask!(cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING)).and_then(|()| {
        let recorded = ask!(cuEventRecord(event, leader));
        let ordered = recorded.and_then(|()| ask!(cuStreamWaitEvent(follower, event, 0)));
        let _destroyed = ask!(cuEventDestroy_v2(event));
        ordered
    });
    ordered.or_else(|_| ask!(cuStreamSynchronize(leader)))
}
