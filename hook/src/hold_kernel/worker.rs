//! The thread that makes the resources of contexts and launches scheduled hold kernels. It is started when first needed. The driver compiles
//! the kernel on this thread, which takes milliseconds and a large stack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sluice_hook_core::hold_kernel::{HoldKernels, HoldPlan, WakeupLatency};
use sluice_hook_core::lock;
use sluice_hook_core::platform::Clock;

use super::contexts::{CONTEXTS, PREPARING};
use super::copy_kernels;
use super::launch::launch_scheduled;
use super::resources::Resources;
use crate::captures::CAPTURES;
use crate::clock::HostClock;
use crate::counters::COUNTERS;
use crate::link::TokenConnection;
use crate::process::{self, ManagedDevice};
use crate::{gpu, preempt, settings, thread};

/// How long to wait for the end of a capture between two checks.
const CAPTURE_CHECK_NS: u64 = 10_000_000;

static STARTED: AtomicBool = AtomicBool::new(false);
static TASKS: Mutex<Tasks> = Mutex::new(Tasks {
    is_preparation_due: false,
    scheduled: Vec::new(),
    wakeup_latency: WakeupLatency::initial(),
});
static TASK_ADDED: Condvar = Condvar::new();

/// A hold kernel that is to be launched later.
pub(super) struct ScheduledHold {
    pub(super) managed: &'static ManagedDevice,
    pub(super) context: u64,
    pub(super) hold: HoldPlan,
}

struct Tasks {
    is_preparation_due: bool,
    scheduled: Vec<ScheduledHold>,
    wakeup_latency: WakeupLatency,
}

/// Makes the resources of the contexts in state `Preparing`.
pub(super) fn prepare() {
    add_task(|tasks| tasks.is_preparation_due = true);
}

/// Launches a hold kernel when its time comes.
pub(super) fn launch_later(scheduled: ScheduledHold) {
    add_task(|tasks| tasks.scheduled.push(scheduled));
}

fn add_task(change: impl FnOnce(&mut Tasks)) {
    change(&mut lock(&TASKS));
    TASK_ADDED.notify_one();
    if !STARTED.load(Acquire) && !STARTED.swap(true, AcqRel) {
        let started = thread::start(c"sluice-hold", thread::LARGE_STACK_BYTES, run_thread);
        // Tried again at the next task.
        STARTED.store(started, Release);
    }
}

fn run_thread() {
    gpu::relax_capture_mode();
    loop {
        if catch_unwind(AssertUnwindSafe(step)).is_err() {
            COUNTERS.panics.fetch_add(1, Relaxed);
            process::devices()
                .for_each(|managed| abandon(&managed.device.hold_kernels, &managed.device.link));
        }
    }
}

/// Ends the hold kernels of a device for good, and with them their lead: the manager must not enable a second group because of it.
pub(crate) fn abandon(hold_kernels: &HoldKernels, link: &TokenConnection) {
    hold_kernels.abandon();
    link.report_lead(0);
}

/// Does one task, or waits for one.
fn step() {
    let mut tasks = lock(&TASKS);
    let now = HostClock.now_ns();
    if let Some(due) = tasks.scheduled.iter().position(|scheduled| scheduled.hold.starts_ns <= now) {
        let scheduled = tasks.scheduled.swap_remove(due);
        drop(tasks);
        launch_scheduled(scheduled.managed, scheduled.context, scheduled.hold);
        return;
    }
    if tasks.is_preparation_due && !CAPTURES.any() {
        tasks.is_preparation_due = false;
        drop(tasks);
        while prepare_one() {}
        return;
    }
    let due = tasks.scheduled.iter().map(|scheduled| scheduled.hold.starts_ns).min();
    let woken = due.map(|due| tasks.wakeup_latency.wake_at(due));
    match woken {
        Some(at) if at <= now => {
            // The rest is too short to sleep. The lock is dropped so that no thread waits for it meanwhile.
            drop(tasks);
            while due.is_some_and(|due| HostClock.now_ns() < due) {
                std::hint::spin_loop();
            }
        }
        _ if tasks.is_preparation_due => {
            let at = woken.unwrap_or(u64::MAX).min(now + CAPTURE_CHECK_NS);
            drop(TASK_ADDED.wait_timeout(tasks, Duration::from_nanos(at - now)));
        }
        Some(at) => {
            let waited = TASK_ADDED.wait_timeout(tasks, Duration::from_nanos(at - now));
            let (mut tasks, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                tasks.wakeup_latency.learn(at, HostClock.now_ns());
            }
        }
        None => drop(TASK_ADDED.wait(tasks)),
    }
}

fn prepare_one() -> bool {
    // A thread that ends a context waits until this one has finished.
    let _preparing = lock(&PREPARING);
    let Some(context) = lock(&CONTEXTS).next_to_prepare() else { return false };
    let made = preempt::make_own_loading_call(context, || Resources::make(context));
    settings::log(format_args!(
        "context {context:#x} {}",
        if made.is_some() { "is ready to hold the GPU" } else { "cannot hold the GPU" }
    ));
    let mut contexts = lock(&CONTEXTS);
    contexts.set_prepared(context, made);
    // None if the context has ended meanwhile.
    if let Some(resources) = contexts.ready(context) {
        copy_kernels::publish(context, resources.copy_kernel());
    }
    true
}
