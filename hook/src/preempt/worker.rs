//! The thread that hands over what waited, and who hears what the engine says.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, PoisonError};

use sluice_preempt::driver::Observer;
use sluice_preempt::ids::QueueId;
use sluice_preempt::outcome::Notice;
use sluice_preempt::worker::{self, WakeSignal};

use super::{as_own_call, as_program_call, engine, preemptors};
use crate::process::{self, COUNTERS};
use crate::thread;

/// The driver may have to load a kernel when it is launched, and a program's callback may be called.
const STACK: usize = 8 << 20;

static WAKE_SIGNAL: LazyLock<WakeSignal> = LazyLock::new(WakeSignal::default);
static IDLE_CALLBACKS: Mutex<BTreeMap<QueueId, IdleCallback>> = Mutex::new(BTreeMap::new());

/// What a program wants to be called when a stream is idle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleCallback {
    pub(crate) stream: usize,
    pub(crate) call: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub(crate) argument: usize,
}

/// Sets, or with `None` ends, what is called when a stream is idle.
pub(super) fn set_on_idle(queue: QueueId, on_idle: Option<IdleCallback>) {
    let mut all = IDLE_CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    match on_idle {
        Some(on_idle) => all.insert(queue, on_idle),
        None => all.remove(&queue),
    };
}

/// Wakes the worker, or starts it.
#[derive(Debug)]
pub(crate) struct WorkerWaker;

impl Observer for WorkerWaker {
    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Idle(queue) => {
                let on_idle =
                    IDLE_CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).get(&queue).copied();
                if let Some(IdleCallback { stream, call, argument }) = on_idle {
                    let stream = std::ptr::with_exposed_provenance_mut(stream);
                    // SAFETY: the program gave us the function and its argument for this.
                    as_program_call(|| unsafe {
                        call(stream, std::ptr::with_exposed_provenance_mut(argument))
                    });
                }
            }
            other => {
                if let Notice::LeaseExpired(queue) = other {
                    preemptors::forget(queue);
                }
                process::log(format_args!("preemption: {other:?}"));
            }
        }
    }

    fn wake(&self) {
        wake_worker();
    }
}

/// Wakes the worker; `false` if there is none and none can be had.
pub(super) fn wake_worker() -> bool {
    let started = !WAKE_SIGNAL.notify() || thread::start(STACK, body, std::ptr::null_mut());
    if !started {
        WAKE_SIGNAL.not_started();
    }
    started
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    thread::settle_in(c"sluice-preempt");
    // Whatever this thread calls, and the driver while it does, is not the program's.
    as_own_call(|| {
        while let Some(engine) = engine() {
            if catch_unwind(AssertUnwindSafe(|| worker::run(engine, &WAKE_SIGNAL))).is_ok() {
                break;
            }
            COUNTERS.panics.fetch_add(1, Relaxed);
        }
    });
    std::ptr::null_mut()
}
