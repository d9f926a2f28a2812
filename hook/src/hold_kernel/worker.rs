//! The thread that makes contexts ready (the driver compiles the kernel, which takes milliseconds and a stack of some size)
//! and launches the holds that are for later. It is started when first needed.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_hook_core::hold_kernel::{HoldPlan, WakeupLatency};
use sluice_hook_core::platform::Clock;

use super::contexts;
use super::resources::Resources;
use crate::clock::HostClock;
use crate::process::{self, CAPTURES, COUNTERS, Managed};
use crate::{gpu, preempt, thread};

/// What the driver's compiler may need.
const STACK: usize = 8 << 20;

/// How long to wait for the end of a capture before looking again.
const CAPTURE_PAUSE_NS: u64 = 10_000_000;

static STARTED: AtomicBool = AtomicBool::new(false);
static WORK: Mutex<Tasks> =
    Mutex::new(Tasks { prepare: false, later: Vec::new(), waking: WakeupLatency::new() });
static CALL: Condvar = Condvar::new();

/// A hold that is for later.
pub(super) struct ScheduledHold {
    pub(super) managed: &'static Managed,
    pub(super) context: u64,
    pub(super) hold: HoldPlan,
}

struct Tasks {
    prepare: bool,
    later: Vec<ScheduledHold>,
    waking: WakeupLatency,
}

/// Has the contexts that stand at `Preparing` made ready.
pub(super) fn prepare() {
    call(|work| work.prepare = true);
}

/// Has a hold launched when its time comes.
pub(super) fn launch_later(later: ScheduledHold) {
    call(|work| work.later.push(later));
}

fn call(change: impl FnOnce(&mut Tasks)) {
    change(&mut WORK.lock().unwrap_or_else(PoisonError::into_inner));
    CALL.notify_one();
    if !STARTED.load(Acquire) && !STARTED.swap(true, AcqRel) {
        let started = thread::start(STACK, body, std::ptr::null_mut());
        // Tried again at the next call.
        STARTED.store(started, Release);
    }
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    thread::settle_in(c"sluice-hold");
    gpu::relax_capture_mode();
    loop {
        if catch_unwind(AssertUnwindSafe(step)).is_err() {
            COUNTERS.panics.fetch_add(1, Relaxed);
            process::devices().for_each(|managed| managed.device.hold_kernels().abandon());
        }
    }
}

/// One thing to do, or a wait for it.
fn step() {
    let mut work = WORK.lock().unwrap_or_else(PoisonError::into_inner);
    let now = HostClock.now_ns();
    if let Some(due) = work.later.iter().position(|later| later.hold.starts_ns <= now) {
        let later = work.later.swap_remove(due);
        drop(work);
        super::launch_scheduled(later.managed, later.context, later.hold);
        return;
    }
    if work.prepare && !CAPTURES.any() {
        work.prepare = false;
        drop(work);
        while prepare_one() {}
        return;
    }
    let due = work.later.iter().map(|later| later.hold.starts_ns).min();
    let woken = due.map(|due| work.waking.wake_at(due));
    match woken {
        Some(at) if at <= now => {
            // What is left is too short to sleep, and nobody may wait for the lock meanwhile.
            drop(work);
            while due.is_some_and(|due| HostClock.now_ns() < due) {
                std::hint::spin_loop();
            }
        }
        _ if work.prepare => {
            let at = woken.unwrap_or(u64::MAX).min(now + CAPTURE_PAUSE_NS);
            drop(CALL.wait_timeout(work, Duration::from_nanos(at - now)));
        }
        Some(at) => {
            let waited = CALL.wait_timeout(work, Duration::from_nanos(at - now));
            let (mut work, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                work.waking.learn(at, HostClock.now_ns());
            }
        }
        None => drop(CALL.wait(work)),
    }
}

fn prepare_one() -> bool {
    // Whoever ends a context waits for this one.
    let _preparing = contexts::preparing();
    let Some(context) = contexts::lock().next_to_prepare() else { return false };
    let made = preempt::load_into(context, || Resources::make(context));
    process::log(format_args!(
        "context {context:#x}: {}",
        if made.is_some() { "ready to hold" } else { "cannot hold" }
    ));
    contexts::lock().set_prepared(context, made);
    true
}
