//! The engine of this process: whether there is one, and whether calls go through it.

use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_preempt::engine::Engine;

use super::disabled_groups::OwnChannelGroups;
use super::own_calls::is_own_call;
use super::stream_gates::HostGates;
use crate::clock::HostClock;
use crate::leaked::Leaked;

/// The real driver as the engine uses it.
#[derive(Debug, Default)]
pub(crate) struct RealDriver {
    pub(super) gates: HostGates,
    pub(super) groups: OwnChannelGroups,
}

/// Wakes the worker, or starts it.
#[derive(Debug)]
pub(crate) struct WorkerWaker;

pub(super) type HookEngine = Engine<RealDriver, HostClock, WorkerWaker>;

/// Whether calls go through the engine.
// SAFETY: as for the table of the driver in `real`.
#[unsafe(link_section = "sluice_launch")]
static ENGAGED: AtomicBool = AtomicBool::new(false);
static ENGINE: Leaked<HookEngine> = Leaked::none();
/// This is the child of a process that had an engine.
static FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether calls go through the engine.
#[inline]
pub(crate) fn is_engaged() -> bool {
    ENGAGED.load(Relaxed)
}

/// From here on calls go through the engine.
pub(super) fn set_engaged() {
    ENGAGED.store(true, Release);
}

/// The engine for a call of the program; `None` if there is none, or if the driver itself is calling.
pub(super) fn engine_for_call() -> Option<&'static HookEngine> {
    if is_own_call() { None } else { engine() }
}

pub(super) fn engine() -> Option<&'static HookEngine> {
    ENGINE.get()
}

/// Stores the engine, unless another thread was first; returns the stored one.
pub(super) fn publish(engine: HookEngine) -> &'static HookEngine {
    ENGINE.publish(engine)
}

/// Opens everything before the process ends: nothing of it may stay on the GPU behind a closed gate, and later exit
/// handlers must not wait for the hook's threads.
pub(super) fn end(engine: &HookEngine) {
    engine.restore_all();
    engine.dispatch();
    ENGAGED.store(false, Release);
    engine.abandon();
}

/// Whether this is the child of a process that had an engine.
pub(super) fn is_forked_child() -> bool {
    FORKED_CHILD.load(Acquire)
}

/// For the child of a fork: uses only atomics.
pub(crate) fn after_fork() {
    if let Some(engine) = engine() {
        FORKED_CHILD.store(true, Release);
        ENGAGED.store(false, Release);
        engine.abandon();
    }
}
