//! The gate that calls pass which may use movable memory, and the threads that wait at it.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use sluice_hook_core::residency::Pass;

use super::mover;
use super::state::{GATE, IS_ON, WAITING, sleep_until_change};
use crate::guard::{Uncancelled, guarded};
use crate::{fork, thread_state};

/// For so long a thread waits for a drain. Work of the GPU may wait for what this thread is about to do.
const LONGEST_DRAIN_NS: u64 = 5_000_000_000;

thread_local! {
    /// Calls of this thread that have passed the gate. Inside one the driver may call another.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// A call that may use movable memory. The memory stays on the GPU until the call ends.
pub(crate) struct Call {
    _pass: Option<Pass<'static>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Begins a call that may use movable memory: waits until it is on the GPU. `None`: no memory of this process leaves.
#[inline]
pub(crate) fn enter() -> Option<Call> {
    if IS_ON.load(Relaxed) { enter_gate() } else { None }
}

#[cold]
fn enter_gate() -> Option<Call> {
    if fork::has_forked() {
        return None;
    }
    let pass = if INSIDE.get() > 0 { None } else { Some(guarded(None, pass_gate)?) };
    INSIDE.set(INSIDE.get() + 1);
    Some(Call { _pass: pass })
}

fn pass_gate() -> Option<Pass<'static>> {
    let thread = thread_state::with_thread(sluice_hook_core::thread_state::ThreadState::id);
    if let Some(pass) = GATE.try_enter(thread) {
        return Some(pass);
    }
    let _waiter = Waiter::begin();
    let mut draining_since = None;
    loop {
        if let Some(pass) = GATE.try_enter(thread) {
            return Some(pass);
        }
        if GATE.is_draining() {
            let now = sluice_sys::clock::monotonic_ns();
            if now.saturating_sub(*draining_since.get_or_insert(now)) >= LONGEST_DRAIN_NS {
                GATE.reopen();
            }
        }
        sleep_until_change();
    }
}

/// A thread that waits for memory, and is reported to the manager.
pub(super) struct Waiter {
    _uncancelled: Uncancelled,
}

impl Waiter {
    pub(super) fn begin() -> Self {
        if WAITING.fetch_add(1, SeqCst) == 0 {
            mover::wake();
        }
        Self { _uncancelled: Uncancelled::begin() }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, SeqCst);
    }
}
