//! The worker thread that submits pending commands, and the receiver of the engine's notices.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex};

use sluice_hook_core::lock;
use sluice_preempt::driver::Observer;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::Notice;
use sluice_preempt::worker::{self, WakeSignal};

use super::engine::{WorkerWaker, engine};
use super::own_calls::{as_own_call, as_program_call};
use super::preempted_streams;
use crate::counters::COUNTERS;
use crate::{settings, thread};

static WAKE_SIGNAL: LazyLock<WakeSignal> = LazyLock::new(WakeSignal::default);
static IDLE_CALLBACKS: Mutex<BTreeMap<QueueId, IdleCallback>> = Mutex::new(BTreeMap::new());

/// The program's callback for an idle stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleCallback {
    pub(crate) stream: usize,
    pub(crate) call: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub(crate) argument: usize,
}

/// Sets the callback of an idle stream, or removes it with `None`.
pub(super) fn set_on_idle(queue: QueueId, on_idle: Option<IdleCallback>) {
    let mut all = lock(&IDLE_CALLBACKS);
    match on_idle {
        Some(on_idle) => all.insert(queue, on_idle),
        None => all.remove(&queue),
    };
}

impl Observer for WorkerWaker {
    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Idle(queue) => {
                let on_idle = lock(&IDLE_CALLBACKS).get(&queue).copied();
                if let Some(IdleCallback { stream, call, argument }) = on_idle {
                    let stream = std::ptr::with_exposed_provenance_mut(stream);
                    // SAFETY: the program gave us the function and its argument for this.
                    as_program_call(|| unsafe {
                        call(stream, std::ptr::with_exposed_provenance_mut(argument))
                    });
                }
            }
            other => {
                if let Notice::OutageEnded(queue) = other {
                    preempted_streams::forget(queue);
                }
                settings::log(format_args!("preemption: {other:?}"));
            }
        }
    }

    fn wake(&self) {
        wake_worker();
    }
}

/// Wakes the worker, or starts it. Returns `false` if it cannot be started.
pub(super) fn wake_worker() -> bool {
    let started =
        !WAKE_SIGNAL.notify() || thread::start(c"sluice-preempt", thread::LARGE_STACK_BYTES, run_thread);
    if !started {
        WAKE_SIGNAL.not_started();
    }
    started
}

fn run_thread() {
    // Neither this thread's calls nor those of the driver during them come from the program.
    as_own_call(|| {
        while let Some(engine) = engine() {
            if catch_unwind(AssertUnwindSafe(|| worker::run(engine, &WAKE_SIGNAL))).is_ok() {
                break;
            }
            COUNTERS.panics.fetch_add(1, Relaxed);
        }
    });
}
