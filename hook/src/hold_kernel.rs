//! Switches the GPU to a latency-critical process before its kernels arrive. A hold kernel keeps the context on the GPU from the first copy
//! of a request, or from the program's hint, until the request's own kernels have been submitted. `sluice_hook_core::hold_kernel` decides
//! when and for how long; this module makes the driver calls and contains the entry points of the program's calls.
//!
//! Hold kernels run on a stream of their own, through the real driver's functions only. They are not counted as launches of the program,
//! use none of its memory, and end by themselves.

mod contexts;
mod copy_kernels;
mod counts;
mod hold_error;
mod launch;
mod release;
mod resources;
mod worker;

use sluice_hook_core::hold_kernel::{
    ContextState, HoldKernelState, HoldKernels, HoldPlan, HoldRefusal, Trigger,
};
use sluice_hook_core::host_bound::Slices;
use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::{Clock, TokenLink};

use crate::captures::CAPTURES;
use crate::clock::HostClock;
use crate::gpu;
use crate::guard::guarded;
use crate::process::{self, ManagedDevice};
use crate::settings;
pub(crate) use contexts::{ContextEnd, begin_context_end};
pub(crate) use copy_kernels::copy_kernel;
pub(crate) use counts::counts;
pub(crate) use hold_error::HoldError;
use launch::{is_any_allowed, launch_in, plan_with_page, refresh_contenders};
use release::{count, release_hold};
use worker::ScheduledHold;
#[cfg(test)]
pub(crate) use worker::abandon;

/// A hold kernel that starts within this time counts as work for the manager from now on, so that the manager does not hand the GPU to
/// another client shortly before. A later one counts from its start. So a hint without a request has a bounded cost, whatever its lead.
const ACTIVITY_LEAD_NS: u64 = 1_000_000;

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
            managed.device.call_began(request_arrives(managed, Trigger::Copy));
        }
    });
}

/// Called before the possible first call of a request: begins the request, or records the arrival of an announced or predicted one. Returns
/// when it was called.
fn request_arrives(managed: &'static ManagedDevice, trigger: Trigger) -> u64 {
    let controller = &managed.device.hold_kernels;
    let now = HostClock.now_ns();
    let continues = !CAPTURES.any() && controller.continue_request(trigger, now);
    if !continues && (controller.is_armed() || !controller.request_arrived(now)) {
        let _held = begin_hold(managed, trigger, 0);
    }
    now
}

/// Called before a launch that has to be noted.
pub(crate) fn before_noted_launch(managed: &'static ManagedDevice) {
    guarded((), || {
        if refresh_contenders(managed).is_err() {
            withdraw_unwanted_lead(managed);
        } else if managed.device.hold_kernels.watches_launches() {
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
            if first {
                read_wanted_lead(managed);
            }
            release_hold(managed, controller.with(|state| state.launch_submitted(now)));
            if first && is_any_allowed() {
                // The launch is reported as work itself.
                managed.active_hold.clear_expected_work(&managed.device);
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

/// Reads by how much hold kernels should lead, before it is learned whether that of the present request did.
fn read_wanted_lead(managed: &'static ManagedDevice) {
    let link = &managed.device.link;
    let wanted_ns = if link.slices() == Slices::Default { 0 } else { link.wanted_lead_ns() };
    let second_group = link.second_group();
    managed.device.hold_kernels.with(|state| state.set_wanted_lead(wanted_ns, second_group));
}

/// Reports no lead where the manager asks for none: without contenders no request learns that.
fn withdraw_unwanted_lead(managed: &'static ManagedDevice) {
    if managed.device.link.wanted_lead_ns() == 0 && managed.device.link.reports_lead() {
        read_wanted_lead(managed);
        managed.device.link.report_lead(0);
    }
}

/// Schedules a hold kernel for the next request, if that is predicted.
fn schedule_predicted(managed: &'static ManagedDevice, now_ns: u64) {
    let controller = &managed.device.hold_kernels;
    let (lead_ns, linger_ns, errors_ns) =
        controller.with(|state| (state.kept_lead_ns(), state.linger_ns(), state.prediction_errors_ns()));
    managed.device.link.report_lead(lead_ns);
    managed.device.link.report_linger(linger_ns);
    managed.device.link.report_prediction_errors(errors_ns);
    if managed.device.link.slices() == Slices::Default {
        return;
    }
    if let Some(hold) = controller.with(|state| state.predict_next(now_ns))
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

/// Calls `real`, in which the driver may wait until the context is idle: it would wait for a hold kernel.
pub(crate) fn may_wait<R>(real: impl FnOnce() -> R) -> R {
    before_wait(true);
    real()
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
        settings::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        let lead_ns = u64::from(lead_us) * 1000;
        let released = managed.device.hold_kernels.with(HoldKernelState::end_between_bursts);
        if released.is_some() {
            release_hold(managed, released);
            managed.device.hold_ended();
        }
        begin_hold(managed, Trigger::Hint, lead_ns)
    })
}

/// Begins a request that the program marks. Its hold kernel lasts until [`end_marked`].
pub(crate) fn begin_marked() -> Result<HoldPlan, HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        settings::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        hold(managed, HoldKernelState::begin_marked)
    })
}

/// Ends a request that the program has marked.
pub(crate) fn end_marked() -> Result<(), HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        settings::check_governed().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        let now = HostClock.now_ns();
        release_hold(managed, managed.device.hold_kernels.with(|state| state.end_marked(now)));
        // Also without a hold kernel to release: it may have ended by itself, before the process counts as idle.
        managed.device.hold_ended();
        managed.active_hold.clear_expected_work(&managed.device);
        Ok(())
    })
}

/// Gives up a hold kernel that ended without a request, and counts hold kernels that are over. Called by the tracker from time to time.
pub(crate) fn expire_and_count(managed: &ManagedDevice) {
    if managed.active_hold.is_overdue() {
        managed.active_hold.clear_expected_work(&managed.device);
    }
    if managed.active_hold.has_uncounted_hold()
        && let Some(page) = managed.active_hold.page()
        && let Some(mut contexts) = contexts::try_lock()
        && let Some(resources) = contexts.all_ready().find(|resources| resources.page().is(page))
    {
        count(managed, resources);
    }
}

/// The device of this thread's call, if its controller `wants` the call.
#[inline]
pub(crate) fn device_for(wants: impl FnOnce(&HoldKernels) -> bool) -> Option<&'static ManagedDevice> {
    device_of_call().filter(|managed| wants(&managed.device.hold_kernels))
}

/// The device of this thread's call. `None` also if the process has several devices and is latency-critical on none.
#[inline]
pub(crate) fn device_of_call() -> Option<&'static ManagedDevice> {
    match process::only_device() {
        None if is_any_allowed() => process::device_for_call(),
        only => only,
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
        managed.active_hold.expect_work(&managed.device, hold);
    }
    if hold.starts_ns > now {
        drop(contexts);
        worker::launch_later(ScheduledHold { managed, context, hold });
    } else {
        launch_in(&mut contexts, managed, context, hold);
    }
    Ok(hold)
}
