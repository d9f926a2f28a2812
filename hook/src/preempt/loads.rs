//! Calls for which the driver waits until the GPU has done all that it has of their context: loads of modules, and launches of kernels
//! that need more local memory than any before. What stands at a gate of the program's own yields to them, as the thread that would
//! restore it may be the one that makes them. (Functions of a loaded module are loaded without such a wait: measured on an H200.)
//! A library that is loaded eagerly goes into all contexts of the process: of those only the current one's streams yield.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_preempt::command::Work;
use sluice_preempt::driver::Driver;
use sluice_preempt::ids::{Context, Stream};

use super::{HookEngine, as_own_call, engine, engine_for_call, is_engaged, preemptors};
use crate::governed::guarded;
use crate::gpu::{self, pointer};
use crate::real;

/// Local memory of a thread, in bytes, that a context certainly has room for: what was measured not to wait.
const NO_WAIT_LOCAL_BYTES: u32 = 64;

/// Kernels that are remembered.
const MAX_KERNELS: usize = 4096;

/// While this lives, streams of the context that the program itself holds yield.
#[derive(Debug)]
pub(super) struct Load(&'static HookEngine, Context);

impl Load {
    fn begin(engine: &'static HookEngine, context: Context) -> Self {
        engine.begin_module_load(context);
        Self(engine, context)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        guarded((), || self.0.end_module_load(self.1));
    }
}

/// A call that loads, or may, into the current context.
#[inline]
pub(crate) fn load<R>(call: impl FnOnce() -> R) -> R {
    with_load(engine_for_call, gpu::current_context, call)
}

/// Likewise one of our own, into this context.
pub(crate) fn load_into<R>(context: u64, call: impl FnOnce() -> R) -> R {
    with_load(engine, || Some(context), call)
}

/// Loads that began before the engine was there: of those it knows nothing.
static UNTRACKED: AtomicU32 = AtomicU32::new(0);

struct UntrackedLoad;

impl UntrackedLoad {
    fn begin() -> Self {
        UNTRACKED.fetch_add(1, Relaxed);
        fence(SeqCst);
        Self
    }
}

impl Drop for UntrackedLoad {
    fn drop(&mut self) {
        UNTRACKED.fetch_sub(1, Relaxed);
    }
}

/// Whether such a load is still under way. Then nothing may stand at a gate that it could wait for.
pub(super) fn is_any_untracked() -> bool {
    // Whoever is not seen here sees that there is an engine.
    fence(SeqCst);
    UNTRACKED.load(Relaxed) > 0
}

fn with_load<R>(
    engine: impl FnOnce() -> Option<&'static HookEngine>,
    context: impl FnOnce() -> Option<u64>,
    call: impl FnOnce() -> R,
) -> R {
    if !is_engaged() {
        let _untracked = UntrackedLoad::begin();
        if !is_engaged() {
            return call();
        }
    }
    let _load = begin(engine(), context);
    call()
}

#[cold]
fn begin(engine: Option<&'static HookEngine>, context: impl FnOnce() -> Option<u64>) -> Option<Load> {
    let engine = engine?;
    guarded(None, || context().map(|context| Load::begin(engine, Context(context))))
}

/// A launch is about to be made: what keeps gates from being shut until it has been, if it needs that.
///
/// One that was on its way already when the first stream was preempted is not looked at.
#[inline]
pub(super) fn before_launch(stream: Stream, work: Work) -> Option<FirstLaunch> {
    match work {
        Work::Kernel(function) if preemptors::is_any_preempted_by_program() => first_launch(stream, function),
        _ => None,
    }
}

/// A kernel that was not launched yet while the program held a stream.
#[derive(Debug)]
pub(super) struct FirstLaunch {
    context: u64,
    function: u64,
    local: u32,
    _load: Option<Load>,
}

#[cold]
fn first_launch(stream: Stream, function: u64) -> Option<FirstLaunch> {
    let engine = engine()?;
    let context = stream.context;
    guarded(None, || {
        let is_known = || launched_kernels().functions.contains(&(context.0, function));
        // What a capture notes down is not launched, and reserves nothing.
        if is_known() || engine.driver().is_capturing(stream) {
            return None;
        }
        as_own_call(|| {
            // To ask for its memory may load it.
            let load = (!is_loaded(function)).then(|| Load::begin(engine, context));
            let local = local_bytes(function);
            let more = launched_kernels().may_need_more(context.0, local);
            let load = load.or_else(|| more.then(|| Load::begin(engine, context)));
            Some(FirstLaunch { context: context.0, function, local, _load: load })
        })
    })
}

/// What the driver said to the launch. One that it did not make has reserved nothing.
pub(super) fn launched(first: Option<FirstLaunch>, result: CUresult) {
    if let Some(first) = first.filter(|_| result == CUresult::SUCCESS) {
        guarded((), || launched_kernels().note(&first));
    }
}

/// Whether the driver says that it has loaded the function.
fn is_loaded(function: u64) -> bool {
    const LOADED: CUfunctionLoadingState = 1;
    let mut state = 0;
    // SAFETY: the program launches the function, or a library's kernel, so it is alive; `state` is writable.
    let asked = real::table().cuFuncIsLoaded.map(|ask| unsafe { ask(&raw mut state, pointer(function)) });
    asked == Some(CUresult::SUCCESS) && state == LOADED
}

/// Local memory of one of its threads, in bytes; as much as can be if the driver does not say.
fn local_bytes(function: u64) -> u32 {
    let mut bytes = 0;
    let asked = real::table().cuFuncGetAttribute.map(|ask| {
        // SAFETY: the program launches the function, or a library's kernel, so it is alive; `bytes` is writable.
        unsafe { ask(&raw mut bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, pointer(function)) }
    });
    if asked == Some(CUresult::SUCCESS) { bytes.try_into().unwrap_or(0) } else { u32::MAX }
}

/// Kernels that were launched while the program held a stream.
#[derive(Debug, Default)]
struct LaunchedKernels {
    /// By context.
    functions: BTreeSet<(u64, u64)>,
    /// The most local memory that one of them needed, by context.
    local: BTreeMap<u64, u32>,
}

static LAUNCHED: Mutex<LaunchedKernels> =
    Mutex::new(LaunchedKernels { functions: BTreeSet::new(), local: BTreeMap::new() });

impl LaunchedKernels {
    /// Whether a kernel with so much local memory may need more than any before. One of which it is not known always may.
    fn may_need_more(&self, context: u64, local: u32) -> bool {
        local > self.local.get(&context).copied().unwrap_or(NO_WAIT_LOCAL_BYTES)
    }

    /// Remembers a kernel that was launched.
    fn note(&mut self, launched: &FirstLaunch) {
        if self.functions.len() >= MAX_KERNELS {
            self.functions.clear();
        }
        self.functions.insert((launched.context, launched.function));
        if launched.local < u32::MAX {
            let most = self.local.entry(launched.context).or_insert(NO_WAIT_LOCAL_BYTES);
            *most = launched.local.max(*most);
        }
    }
}

/// A module was unloaded, or a context has ended: handles of functions may come again.
pub(super) fn forget_functions(context: Option<u64>) {
    let mut kernels = launched_kernels();
    kernels.functions.clear();
    if let Some(context) = context {
        kernels.local.remove(&context);
    }
}

fn launched_kernels() -> MutexGuard<'static, LaunchedKernels> {
    LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
