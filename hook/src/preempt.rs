//! Streams that can be preempted: the engine of `sluice_preempt` behind the driver's functions.
//!
//! Until a program enables preemption, or its manager wants gates, nothing in here runs: each exported function looks at one
//! flag. From then on every call on a stream or an event goes through the engine, because streams that are not preempted have to
//! wait for those that are where the program says so. The flag never goes down again: the engine knows what events mean.
//!
//! * `streams` finds the queue that a handle means; `submit`, `launches`, `copies`, `events` and `waits` are the calls;
//!   `argument` and `parameters` keep what they were given.
//! * `driver`, `gates` (by `cells` and `memops`) and `slices` stand behind the engine's traits; `worker` is the thread that
//!   hands over what waited.
//! * `control` is what the C functions do; `manager` follows a manager's gate; `holds` knows which of the two holds a stream;
//!   `loads` are the calls that what stands at a gate yields to.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod arguments;
mod clock;
pub(crate) mod copies;
mod driver;
pub(crate) mod events;
mod gate_cells;
pub(crate) mod launches;
mod loads;
pub(crate) mod manager;
mod memops;
mod own_groups;
mod parameters;
mod preemptors;
pub(crate) mod program_api;
mod stream_gates;
mod streams;
mod submit;
mod waits;
mod worker;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_preempt::engine::Engine;
use sluice_preempt::ids::{Code, Stream};

pub(crate) use arguments::{Arg, Other, Sent};
pub(crate) use loads::{load, load_into};
pub(crate) use submit::{ask, graph_changes, graph_ends, order, submit, turn};
pub(crate) use waits::{
    capture, context_ended, context_ends, context_stays, query, settle, stream_ends, synchronize,
    synchronize_context, unload,
};

type HookEngine = Engine<driver::RealDriver, clock::EngineClock, worker::WorkerWaker>;

/// Calls go through the engine.
static ENGAGED: AtomicBool = AtomicBool::new(false);
/// Made once, never freed.
static ENGINE: AtomicPtr<HookEngine> = AtomicPtr::new(std::ptr::null_mut());
/// The process is about to end.
static PROCESS_ENDING: AtomicBool = AtomicBool::new(false);
/// This is the child of a process that had an engine.
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The thread is in a call of the driver's that is ours to make: what the driver calls meanwhile is not the program's.
    static IN_OWN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Whether calls go through the engine.
#[inline]
pub(crate) fn is_engaged() -> bool {
    ENGAGED.load(Relaxed)
}

/// The engine for a call of the program's; `None` if there is none, or the driver itself is calling.
fn engine_for_call() -> Option<&'static HookEngine> {
    if IN_OWN_CALL.get() { None } else { engine() }
}

fn engine() -> Option<&'static HookEngine> {
    // SAFETY: the pointer is null or comes from `Box::into_raw` and is never freed.
    unsafe { ENGINE.load(Acquire).as_ref() }
}

/// The engine, made if need be; from here on calls go through it. `None` in the child of a process that had one.
fn engage() -> Option<&'static HookEngine> {
    if FORKED_CHILD.load(Acquire) {
        return None;
    }
    let engine = engine().unwrap_or_else(make);
    ENGAGED.store(true, Release);
    Some(engine)
}

#[cold]
fn make() -> &'static HookEngine {
    let fresh = Engine::new(driver::RealDriver::default(), clock::EngineClock, worker::WorkerWaker);
    let fresh = Box::into_raw(Box::new(fresh));
    match ENGINE.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire) {
        Ok(_) => {
            // SAFETY: as below.
            events::introduce(unsafe { &*fresh });
            // SAFETY: the handler is a function of a library that is never unloaded.
            unsafe { libc::atexit(at_exit) };
            // SAFETY: `fresh` is valid and from here on shared and never freed.
            unsafe { &*fresh }
        }
        Err(first) => {
            // SAFETY: `fresh` was not published, so this is its only owner; `first` was and is never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                &*first
            }
        }
    }
}

/// Nothing of the process may stay on the GPU behind a shut gate, and handlers that run later must not wait for anything of ours.
extern "C" fn at_exit() {
    let Some(engine) = engine().filter(|_| !FORKED_CHILD.load(Acquire)) else { return };
    crate::governed::guarded((), || {
        PROCESS_ENDING.store(true, Release);
        engine.restore_all();
        engine.dispatch();
        ENGAGED.store(false, Release);
        engine.abandon();
    });
}

/// Whether a manager's gate keeps commands of a stream from the driver, which therefore knows of no work there.
pub(crate) fn keeps_back(context: u64, stream: CUstream) -> bool {
    let handle = (stream.expose_provenance() as u64).max(Stream::LEGACY);
    is_engaged()
        && engine().is_some_and(|engine| {
            crate::governed::guarded(false, || {
                streams::of_context(context).iter().any(|queue| {
                    queue.stream().handle == handle
                        && preemptors::is_preempted_by_manager(queue.id())
                        && engine.pending_commands(queue) > 0
                })
            })
        })
}

/// Runs a call that may need the GPU, which a stream of the context must not keep from it at level full.
#[inline]
pub(crate) fn beside<R>(call: impl FnOnce() -> R) -> R {
    own_groups::yield_group(None);
    call()
}

/// Whether the process is about to end.
fn is_ending() -> bool {
    PROCESS_ENDING.load(Acquire)
}

/// In the child of a fork: only atomics.
pub(crate) fn after_fork() {
    if let Some(engine) = engine() {
        FORKED_CHILD.store(true, Release);
        ENGAGED.store(false, Release);
        engine.abandon();
    }
}

/// Makes a call of the driver's during which the program is not the one who calls.
fn as_own_call<R>(call: impl FnOnce() -> R) -> R {
    let before = IN_OWN_CALL.replace(true);
    let result = call();
    IN_OWN_CALL.set(before);
    result
}

/// Runs a function of the program's from a thread of ours.
fn as_program_call<R>(call: impl FnOnce() -> R) -> R {
    let before = IN_OWN_CALL.replace(false);
    let result = call();
    IN_OWN_CALL.set(before);
    result
}

/// The driver's word as the engine takes it.
pub(crate) fn code(result: CUresult) -> Result<(), Code> {
    if result == CUresult::SUCCESS { Ok(()) } else { Err(Code(result.0)) }
}

/// The engine's word as the driver would say it.
fn status(result: Result<(), Code>) -> CUresult {
    result.map_or_else(|Code(code)| CUresult(code), |()| CUresult::SUCCESS)
}
