//! Calls for which the driver waits until the GPU has completed all work of their context: module loads, and launches
//! of kernels that need more local memory than any before. A stream at a gate of the program's own yields to them, as
//! the thread that would restore it may be the one that makes them. (Functions of a loaded module are loaded without
//! such a wait: measured on an H200.) A library that is loaded eagerly goes into all contexts of the process; only
//! the streams of the current context yield.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_preempt::command::Work;
use sluice_preempt::driver::Driver;
use sluice_preempt::ids::{Context, Stream};

use super::engine::{HookEngine, engine, engine_for_call, is_engaged};
use super::own_calls::as_own_call;
use super::preempted_streams;
use super::untracked_loads::UntrackedLoad;
use crate::gpu::{self, pointer};
use crate::guard::guarded;
use crate::real;

/// Local memory per thread, in bytes, that every context has room for: measured not to wait.
const NO_WAIT_LOCAL_BYTES: u32 = 64;

const MAX_KERNELS: usize = 4096;

/// While this exists, preempted streams of the context yield.
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

/// Makes a call that loads, or may load, into the current context.
#[inline]
pub(crate) fn make_loading_call<R>(call: impl FnOnce() -> R) -> R {
    with_load(engine_for_call, gpu::current_context, call)
}

/// Makes a loading call of the hook's own, into this context.
pub(crate) fn make_own_loading_call<R>(context: u64, call: impl FnOnce() -> R) -> R {
    with_load(engine, || Some(context), call)
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

/// Called before a launch. Returns a guard that keeps gates open during the launch, if the launch needs that.
///
/// A launch already in progress when the first stream was preempted is not covered.
#[inline]
pub(super) fn before_launch(stream: Stream, work: Work) -> Option<FirstLaunch> {
    match work {
        Work::Kernel(function) if preempted_streams::is_any_preempted() => first_launch(stream, function),
        _ => None,
    }
}

/// A kernel that was not launched yet while the program preempted a stream.
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
        let is_known = || lock(&LAUNCHED).functions.contains(&(context.0, function));
        // A capture does not launch the kernel, so the driver reserves nothing for it.
        if is_known() || engine.driver().is_capturing(stream) {
            return None;
        }
        as_own_call(|| {
            // The query for its local memory may load it.
            let load = (!is_loaded(function)).then(|| Load::begin(engine, context));
            let local = local_bytes(function);
            let more = lock(&LAUNCHED).may_need_more(context.0, local);
            let load = load.or_else(|| more.then(|| Load::begin(engine, context)));
            Some(FirstLaunch { context: context.0, function, local, _load: load })
        })
    })
}

/// Called after the launch. A launch that the driver did not make has reserved nothing.
pub(super) fn launched(first: Option<FirstLaunch>, result: CUresult) {
    if let Some(first) = first.filter(|_| result == CUresult::SUCCESS) {
        guarded((), || lock(&LAUNCHED).note(&first));
    }
}

/// Whether the driver reports the function as loaded.
fn is_loaded(function: u64) -> bool {
    const LOADED: CUfunctionLoadingState = 1;
    let mut state = 0;
    // SAFETY: the program launches the function, or a library's kernel, so it is alive; `state` is writable.
    let asked = real::table().cuFuncIsLoaded.map(|ask| unsafe { ask(&raw mut state, pointer(function)) });
    asked == Some(CUresult::SUCCESS) && state == LOADED
}

/// Local memory of one of the function's threads, in bytes; the maximum if the driver does not report it.
fn local_bytes(function: u64) -> u32 {
    let mut bytes = 0;
    let asked = real::table().cuFuncGetAttribute.map(|ask| {
        // SAFETY: the program launches the function, or a library's kernel, so it is alive; `bytes` is writable.
        unsafe { ask(&raw mut bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, pointer(function)) }
    });
    if asked == Some(CUresult::SUCCESS) { bytes.try_into().unwrap_or(0) } else { u32::MAX }
}

/// Kernels that were launched while the program preempted a stream.
#[derive(Debug, Default)]
struct LaunchedKernels {
    functions: BTreeSet<(u64, u64)>,
    /// The most local memory that one of them needed, by context, in bytes.
    local: BTreeMap<u64, u32>,
}

static LAUNCHED: Mutex<LaunchedKernels> =
    Mutex::new(LaunchedKernels { functions: BTreeSet::new(), local: BTreeMap::new() });

impl LaunchedKernels {
    /// Whether a kernel with so much local memory may need more than any before. An unknown amount always may.
    fn may_need_more(&self, context: u64, local: u32) -> bool {
        local > self.local.get(&context).copied().unwrap_or(NO_WAIT_LOCAL_BYTES)
    }

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

/// Forgets functions whose handles the driver may reuse, because a module was unloaded or a context has ended.
pub(super) fn forget_functions(context: Option<u64>) {
    let mut kernels = lock(&LAUNCHED);
    kernels.functions.clear();
    if let Some(context) = context {
        kernels.local.remove(&context);
    }
}
