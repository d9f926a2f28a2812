//! Preemptible streams: the engine of `sluice_preempt` behind the exported driver functions.
//!
//! Until a program enables preemption, or its manager wants stream gates, nothing here runs: each exported function
//! reads one flag. From then on every call on a stream or an event goes through the engine, because streams that are
//! not preempted have to wait for preempted ones where the program orders them. The flag is never cleared: only the
//! engine knows what events refer to.
//!
//! * `streams` finds the queue of a handle. `submit`, `launches`, `copies`, `events` and `waits` implement the calls;
//!   `arguments` and `parameters` keep their arguments.
//! * `driver`, `stream_gates` (with `gate_cells`) and `own_groups` implement the engine's traits.
//!   `worker` is the thread that submits pending commands.
//! * `program_api` implements the C functions. `manager` follows the manager's gate word. `preemptors` records
//!   whether program, manager or both preempt a stream. `loads` are the calls to which a stream at a gate yields.

mod arguments;
pub(crate) mod copies;
mod driver;
pub(crate) mod events;
mod gate_cells;
pub(crate) mod launches;
mod loads;
pub(crate) mod manager;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_preempt::engine::Engine;
use sluice_preempt::ids::Code;
use sluice_preempt::queue::Queue;

use crate::clock::HostClock;
use crate::leaked::Leaked;
pub(crate) use arguments::{Argument, PlainArgument, SendableArguments};
pub(crate) use loads::{make_loading_call, make_own_loading_call};
pub(crate) use submit::{
    destroy_graph, on_queue, own_stand_in, query_on_stream, stands_for, submit, submit_by_caller,
    submit_by_value, through_engine, update_graph,
};
pub(crate) use waits::{
    begin_context_end, cancel_context_end, capture, destroy_stream, finish_context_end, flush_context_before,
    synchronize_context, unload,
};

type HookEngine = Engine<driver::RealDriver, HostClock, worker::WorkerWaker>;

/// Whether calls go through the engine.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
static ENGAGED: AtomicBool = AtomicBool::new(false);
static ENGINE: Leaked<HookEngine> = Leaked::none();
static PROCESS_ENDING: AtomicBool = AtomicBool::new(false);
/// This is the child of a process that had an engine.
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The thread makes a driver call of the hook's own. What the driver calls during it does not come from the
    /// program.
    static IN_OWN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Whether calls go through the engine.
#[inline]
pub(crate) fn is_engaged() -> bool {
    ENGAGED.load(Relaxed)
}

/// The engine for a call of the program; `None` if there is none, or if the driver itself is calling.
fn engine_for_call() -> Option<&'static HookEngine> {
    if IN_OWN_CALL.get() { None } else { engine() }
}

fn engine() -> Option<&'static HookEngine> {
    ENGINE.get()
}

/// The engine, created if it does not exist; from here on calls go through it. `None` in the child of a process that
/// had one.
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
    static IS_PREPARED: AtomicBool = AtomicBool::new(false);
    let engine = ENGINE.publish(Engine::new(driver::RealDriver::default(), HostClock, worker::WorkerWaker));
    if !IS_PREPARED.swap(true, AcqRel) {
        events::introduce(engine);
        // SAFETY: the handler is a function of a library that is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    engine
}

/// Opens everything before the process ends: nothing of it may stay on the GPU behind a closed gate, and later exit
/// handlers must not wait for the hook's threads.
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

/// Whether commands of a context are in host queues, so that the driver does not know of them. Those that a stop by the program may keep
/// there do not count: the program may never resume the stream.
pub(crate) fn has_queued_commands(context: u64) -> bool {
    has_pending_commands(|| streams::of_context(context)) || has_queued_commands_of_destroyed(context)
}

/// The same for commands of destroyed streams only.
pub(crate) fn has_queued_commands_of_destroyed(context: u64) -> bool {
    has_pending_commands(|| {
        let mut ended = streams::ended();
        ended.retain(|queue| queue.stream().context.0 == context);
        ended
    })
}

fn has_pending_commands(queues: impl FnOnce() -> Vec<Arc<Queue>>) -> bool {
    is_engaged()
        && engine().is_some_and(|engine| {
            crate::governed::guarded(false, || {
                queues().iter().any(|queue| {
                    engine.pending_commands(queue) > 0
                        && (preemptors::is_preempted_by_manager(queue.id())
                            || !preemptors::is_any_preempted_by_program())
                })
            })
        })
}

/// Runs a call that may need the GPU. A stream of the context at level *full* gives the GPU back first.
#[inline]
pub(crate) fn give_gpu_back_for<R>(call: impl FnOnce() -> R) -> R {
    own_groups::yield_group(None);
    call()
}

fn is_ending() -> bool {
    PROCESS_ENDING.load(Acquire)
}

/// For the child of a fork: uses only atomics.
pub(crate) fn after_fork() {
    if let Some(engine) = engine() {
        FORKED_CHILD.store(true, Release);
        ENGAGED.store(false, Release);
        engine.abandon();
    }
}

/// Makes a driver call of the hook's own: calls that the driver makes during it are not the program's.
fn as_own_call<R>(call: impl FnOnce() -> R) -> R {
    with_own_call(true, call)
}

/// Runs a function of the program on a thread of the hook: driver calls during it are the program's.
fn as_program_call<R>(call: impl FnOnce() -> R) -> R {
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
pub(crate) fn code(result: CUresult) -> Result<(), Code> {
    if result == CUresult::SUCCESS { Ok(()) } else { Err(Code(result.0)) }
}

/// The engine's result as the driver represents it.
fn status(result: Result<(), Code>) -> CUresult {
    result.map_or_else(|Code(code)| CUresult(code), |()| CUresult::SUCCESS)
}
