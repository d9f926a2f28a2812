//! Switches the GPU to a latency-critical process before its kernels arrive. A hold kernel keeps the context on the GPU from the first copy
//! of a request, or from the program's hint, until the request's own kernels have been submitted. `sluice_hook_core::hold_kernel` decides
//! when and for how long; this module makes the driver calls and contains the entry points of the program's calls.
//!
//! Hold kernels run on a stream of their own, through the real driver's functions only. They are not counted as launches of the program,
//! use none of its memory, and end by themselves.

mod active;
mod contexts;
mod page;
mod resources;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_hook_core::hold_kernel::{
    ContextState, HoldKernelState, HoldKernels, HoldPlan, HoldRefusal, Trigger,
};
use sluice_hook_core::host_bound::Slices;
use sluice_hook_core::lock;
use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::{Clock, TokenLink};

use crate::clock::HostClock;
use crate::governed::guarded;
use crate::gpu;
use crate::process::{self, CAPTURES, ManagedDevice};
pub(crate) use active::{ActiveHold, counts};
use contexts::{CONTEXTS, Contexts};
pub(crate) use contexts::{ContextEnd, begin_context_end};
use page::HoldPage;
use resources::Resources;
use worker::ScheduledHold;

/// Some device of this process is latency-critical and has contenders.
static ANY_ALLOWED: AtomicBool = AtomicBool::new(false);

/// A hold kernel that starts within this time counts as work for the manager from now on, so that the manager does not hand the GPU to
/// another client shortly before. A later one counts from its start. So a hint without a request has a bounded cost, whatever its lead.
const ACTIVITY_LEAD_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldError {
    /// The process or the device is not governed.
    Bypassed(Bypass),
    NotCritical,
    Capturing,
    /// The context's resources are being made; a later call may succeed.
    Preparing,
    /// The driver or the context does not support it.
    Unable,
    Refused(HoldRefusal),
}

/// Called before a copy is submitted.
#[inline]
pub(crate) fn before_copy(is_input: impl FnOnce() -> bool) {
    if let Some(managed) = device_for(HoldKernels::watches_copies) {
        on_copy(managed, is_input);
    }
}

#[cold]
fn on_copy(managed: &'static ManagedDevice, is_input: impl FnOnce() -> bool) {
    guarded((), || {
        if is_input() {
            request_arrives(managed, Trigger::Copy);
        }
    });
}

/// Called before the possible first call of a request: begins the request, or records the arrival of an announced or predicted one.
fn request_arrives(managed: &'static ManagedDevice, trigger: Trigger) {
    let controller = &managed.device.hold_kernels;
    let now = HostClock.now_ns();
    if !CAPTURES.any() && controller.continue_request(trigger, now) {
        return;
    }
    if controller.is_armed() || !controller.request_arrived(now) {
        let _held = begin_hold(managed, trigger, 0);
    }
}

/// Called before a launch that has to be noted.
pub(crate) fn before_noted_launch(managed: &'static ManagedDevice) {
    guarded((), || {
        if refresh_contenders(managed).is_ok() && managed.device.hold_kernels.watches_launches() {
            request_arrives(managed, Trigger::Launch);
        }
    });
}

/// Called after the same launch.
#[cold]
pub(crate) fn after_noted_launch(managed: &'static ManagedDevice) {
    let controller = &managed.device.hold_kernels;
    if controller.watches_launches() || controller.is_released_by_parts() {
        guarded((), || {
            let now = HostClock.now_ns();
            let first = controller.watches_launches();
            release_hold(managed, controller.with(|state| state.launch_submitted(now)));
            if first && ANY_ALLOWED.load(Relaxed) {
                // The launch is reported as work itself.
                managed.active_hold.clear_expected_work(managed);
                schedule_predicted(managed, now);
            }
        });
    }
}

/// Called before a launch that may have to wait: for a grant, or because a client with an earlier deadline has urgent work. The wait would
/// keep a hold kernel on the GPU.
pub(crate) fn leave_gpu_if_launch_waits(managed: &'static ManagedDevice) {
    let controller = &managed.device.hold_kernels;
    if controller.is_active() && managed.device.would_wait() {
        release_hold(managed, controller.with(HoldKernelState::leave_gpu));
        managed.device.hold_ended();
    }
}

/// Schedules a hold kernel for the next request, if that is predicted.
fn schedule_predicted(managed: &'static ManagedDevice, now_ns: u64) {
    if managed.device.link.slices() == Slices::Default {
        return;
    }
    if let Some(hold) = managed.device.hold_kernels.with(|state| state.predict_next(now_ns))
        && let Some(context) = gpu::current_context()
    {
        worker::launch_later(ScheduledHold { managed, context, hold });
    }
}

/// Called before the host waits for the GPU, for a whole context or for a part.
#[inline]
pub(crate) fn before_wait(whole_context: bool) {
    let matters = if whole_context { HoldKernels::is_active } else { HoldKernels::is_released_by_parts };
    if let Some(managed) = device_for(matters) {
        on_wait(managed, whole_context);
    }
}

/// Called before a launch that may be cooperative. All blocks of such a kernel have to be on the GPU at once, so it may wait for a hold
/// kernel.
#[inline]
pub(crate) fn before_cooperative(is_cooperative: impl FnOnce() -> bool) {
    if let Some(managed) = device_for(HoldKernels::is_active).filter(|_| is_cooperative()) {
        on_wait(managed, true);
    }
}

#[cold]
fn on_wait(managed: &'static ManagedDevice, whole_context: bool) {
    guarded((), || {
        release_hold(managed, managed.device.hold_kernels.with(|state| state.host_wait_begins(whole_context)))
    });
}

/// Handles the program's announcement of a request in `lead_us`.
pub(crate) fn hint(lead_us: u32) -> Result<HoldPlan, HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        process::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        let lead_ns = u64::from(lead_us) * 1000;
        let at_ns = HostClock.now_ns().saturating_add(lead_ns);
        let released = managed.device.hold_kernels.with(HoldKernelState::end_between_bursts);
        if released.is_some() {
            release_hold(managed, released);
            managed.device.hold_ended();
        }
        let result = begin_hold(managed, Trigger::Hint, lead_ns);
        if let Err(
            HoldError::Preparing
            | HoldError::Unable
            | HoldError::Refused(HoldRefusal::NoContenders | HoldRefusal::NotWorthIt),
        ) = result
        {
            // A hold kernel counts as work. Without one, other clients can still be told to hold their work back.
            managed.device.link.announce_request(at_ns);
        }
        result
    })
}

/// Begins a request that the program marks. Its hold kernel lasts until [`end_marked`].
pub(crate) fn begin_marked() -> Result<HoldPlan, HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        process::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        hold(managed, HoldKernelState::begin_marked)
    })
}

/// Ends a request that the program has marked.
pub(crate) fn end_marked() -> Result<(), HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        process::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        let now = HostClock.now_ns();
        release_hold(managed, managed.device.hold_kernels.with(|state| state.end_marked(now)));
        // Also without a hold kernel to release: it may have ended by itself, before the process counts as idle.
        managed.device.hold_ended();
        managed.active_hold.clear_expected_work(managed);
        Ok(())
    })
}

/// Gives up a hold kernel that ended without a request, and counts hold kernels that are over. Called by the tracker from time to time.
pub(crate) fn expire_and_count(managed: &ManagedDevice) {
    if managed.active_hold.is_overdue() {
        managed.active_hold.clear_expected_work(managed);
    }
    if managed.active_hold.has_uncounted_hold()
        && let Some(page) = managed.active_hold.page()
        && let Some(mut contexts) = contexts::try_lock()
        && let Some(resources) = contexts.all_ready().find(|resources| resources.page().is(page))
    {
        count(managed, resources);
    }
}

/// Counts the last hold kernel of a context if it has ended.
fn count(managed: &ManagedDevice, resources: &mut Resources) {
    let Some(finished) = resources.take_finished() else { return };
    managed.active_hold.set_counted();
    managed.device.link.count_hold(finished.held_ns);
    active::UNRELEASED.fetch_add(finished.unreleased, Relaxed);
    if let Some(times) = finished.times {
        managed.device.hold_kernels.with(|state| state.learn_times(times));
    }
}

/// The device of this thread's call, if its controller `wants` the call.
#[inline]
fn device_for(wants: impl FnOnce(&HoldKernels) -> bool) -> Option<&'static ManagedDevice> {
    let managed = match process::only_device() {
        Some(managed) => managed,
        None if ANY_ALLOWED.load(Relaxed) => process::device_for_call()?,
        None => return None,
    };
    wants(&managed.device.hold_kernels).then_some(managed)
}

/// Passes the manager's number of contenders to the controller. `Err` if this process may not use hold kernels.
fn refresh_contenders(managed: &ManagedDevice) -> Result<(), HoldError> {
    let contenders = managed.device.link.critical_contenders();
    managed.device.hold_kernels.set_contenders(contenders.unwrap_or(0));
    match contenders {
        None => Err(HoldError::NotCritical),
        Some(0) => Err(HoldError::Refused(HoldRefusal::NoContenders)),
        Some(_) => {
            ANY_ALLOWED.store(true, Relaxed);
            Ok(())
        }
    }
}

/// Begins a request in the current context and launches or schedules its hold kernel.
fn begin_hold(
    managed: &'static ManagedDevice,
    trigger: Trigger,
    lead_ns: u64,
) -> Result<HoldPlan, HoldError> {
    // Beside default slices the process is host-bound: a hold would keep best-effort work off the GPU while the host prepares launches.
    if trigger != Trigger::Hint && managed.device.link.slices() == Slices::Default {
        return Err(HoldError::Refused(HoldRefusal::NotWorthIt));
    }
    hold(managed, |state, now| state.begin_request(trigger, now, lead_ns))
}

/// Launches or schedules the hold kernel that `plan` returns, in the current context.
fn hold(
    managed: &'static ManagedDevice,
    plan: impl FnOnce(&mut HoldKernelState, u64) -> Result<HoldPlan, HoldRefusal>,
) -> Result<HoldPlan, HoldError> {
    if CAPTURES.any() {
        return Err(HoldError::Capturing);
    }
    refresh_contenders(managed)?;
    if managed.device.would_wait() {
        return Err(HoldError::Refused(HoldRefusal::LaunchWaits));
    }
    let controller = &managed.device.hold_kernels;
    if !controller.is_allowed() {
        return Err(HoldError::Refused(HoldRefusal::Disabled));
    }
    let context = gpu::current_context().ok_or(HoldError::Bypassed(Bypass::NoContext))?;
    // If another thread has the lock, this is not the request's first call, or the context is about to end.
    let mut contexts = contexts::try_lock().ok_or(HoldError::Refused(HoldRefusal::AlreadyBegun))?;
    let now = HostClock.now_ns();
    let resources = match contexts.get(context) {
        Some(ContextState::Ready(resources)) => resources,
        Some(ContextState::Preparing) => return Err(HoldError::Preparing),
        Some(ContextState::Unable) => return Err(HoldError::Unable),
        None => {
            contexts.request(context);
            drop(contexts);
            worker::prepare();
            return Err(HoldError::Preparing);
        }
    };
    count(managed, resources);
    controller.expire_request(now);
    let hold =
        plan_with_page(managed, resources.page(), |state| plan(state, now)).map_err(HoldError::Refused)?;
    if hold.starts_ns <= now + ACTIVITY_LEAD_NS {
        managed.active_hold.expect_work(managed, hold);
    }
    if hold.starts_ns > now {
        drop(contexts);
        worker::launch_later(ScheduledHold { managed, context, hold });
    } else {
        launch_in(&mut contexts, managed, context, hold);
    }
    Ok(hold)
}

/// Calls `plan`. If that plans a hold kernel, the state uses this page from then on, before another thread's launch can release it.
fn plan_with_page<T, E>(
    managed: &ManagedDevice,
    page: HoldPage,
    plan: impl FnOnce(&mut HoldKernelState) -> Result<T, E>,
) -> Result<T, E> {
    managed.device.hold_kernels.with(|state| {
        let planned = plan(state)?;
        managed.active_hold.set(page);
        state.use_words(page.words());
        Ok(planned)
    })
}

/// Launches a hold kernel whose time has come, if it is still needed.
fn launch_scheduled(managed: &ManagedDevice, context: u64, hold: HoldPlan) {
    if CAPTURES.any() || refresh_contenders(managed).is_err() || managed.device.would_wait() {
        return;
    }
    let mut contexts = lock(&CONTEXTS);
    let controller = &managed.device.hold_kernels;
    let Some(resources) = contexts.ready(context) else {
        // The context has ended meanwhile: not even its handle may be passed to the driver.
        controller.with(|state| state.launch_failed(hold.ticket));
        return;
    };
    count(managed, resources);
    let is_due = |state: &mut HoldKernelState| state.take_due(hold.ticket).then_some(()).ok_or(());
    if plan_with_page(managed, resources.page(), is_due).is_ok() {
        managed.active_hold.expect_work(managed, hold);
        let late_ns = HostClock.now_ns().saturating_sub(hold.starts_ns);
        active::count_scheduled(late_ns);
        gpu::with_context(context, || launch_in(&mut contexts, managed, context, hold));
    } else {
        active::NOT_LAUNCHED.fetch_add(1, Relaxed);
    }
}

fn launch_in(contexts: &mut Contexts, managed: &ManagedDevice, context: u64, hold: HoldPlan) {
    let launched = process::with_thread(|thread| {
        // If the driver calls one launch function from another, that is not a launch of the program.
        let _inside = thread.enter();
        let resources = contexts.ready(context);
        resources.is_some_and(|resources| resources.launch(hold.ticket, hold.limits(), HostClock.now_ns()))
    });
    if launched {
        active::LAUNCHED.fetch_add(1, Relaxed);
    } else {
        managed.device.hold_kernels.with(|state| state.launch_failed(hold.ticket));
        contexts.set_prepared(context, None);
    }
}

fn release_hold(managed: &ManagedDevice, ticket: Option<u32>) {
    if let (Some(ticket), Some(page)) = (ticket, managed.active_hold.page()) {
        page.release(ticket);
        active::RELEASED.fetch_add(1, Relaxed);
        managed.active_hold.clear_expected_work(managed);
    }
}
