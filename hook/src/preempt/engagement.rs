//! How the engine comes to be, and what ends it.

use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_preempt::engine::Engine;

use super::engine::{
    HookEngine, RealDriver, WorkerWaker, end, engine, is_forked_child, publish, set_engaged,
};
use super::events;
use crate::clock::HostClock;
use crate::guard::guarded;

/// The engine, created if it does not exist; from here on calls go through it. `None` in the child of a process that
/// had one.
pub(super) fn engage() -> Option<&'static HookEngine> {
    if is_forked_child() {
        return None;
    }
    let engine = engine().unwrap_or_else(make);
    set_engaged();
    Some(engine)
}

#[cold]
fn make() -> &'static HookEngine {
    static IS_PREPARED: AtomicBool = AtomicBool::new(false);
    let engine = publish(Engine::new(RealDriver::default(), HostClock, WorkerWaker));
    if !IS_PREPARED.swap(true, AcqRel) {
        events::introduce(engine);
        // SAFETY: the handler is a function of a library that is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    engine
}

extern "C" fn at_exit() {
    if let Some(engine) = engine().filter(|_| !is_forked_child()) {
        guarded((), || end(engine));
    }
}
