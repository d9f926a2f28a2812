//! Launches of hold kernels that are planned.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sluice_hook_core::hold_kernel::{HoldKernelState, HoldPlan, HoldRefusal};
use sluice_hook_core::lock;
use sluice_hook_core::platform::{Clock, TokenLink};

use super::contexts::{CONTEXTS, Contexts};
use super::counts::{LAUNCHED, NOT_LAUNCHED, count_scheduled};
use super::hold_error::HoldError;
use super::release::count;
use crate::captures::CAPTURES;
use crate::clock::HostClock;
use crate::gpu;
use crate::hold_page::HoldPage;
use crate::process::ManagedDevice;
use crate::thread_state::with_thread;

/// Some device of this process is latency-critical and has contenders.
static ANY_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Whether some device of this process is latency-critical and has contenders.
pub(super) fn is_any_allowed() -> bool {
    ANY_ALLOWED.load(Relaxed)
}

/// Passes the manager's number of contenders to the controller. `Err` if this process may not use hold kernels.
pub(super) fn refresh_contenders(managed: &ManagedDevice) -> Result<(), HoldError> {
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

/// Calls `plan`. If that plans a hold kernel, the state uses this page from then on, before another thread's launch can release it.
pub(super) fn plan_with_page<T, E>(
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
pub(super) fn launch_scheduled(managed: &ManagedDevice, context: u64, hold: HoldPlan) {
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
    let is_due = |state: &mut HoldKernelState| {
        let is_due = state.take_due(hold.ticket);
        if is_due {
            state.predicted_hold_launched(HostClock.now_ns());
        }
        is_due.then_some(()).ok_or(())
    };
    if plan_with_page(managed, resources.page(), is_due).is_ok() {
        managed.active_hold.expect_work(&managed.device, hold);
        let late_ns = HostClock.now_ns().saturating_sub(hold.starts_ns);
        count_scheduled(late_ns);
        gpu::with_context(context, || launch_in(&mut contexts, managed, context, hold));
    } else {
        NOT_LAUNCHED.fetch_add(1, Relaxed);
    }
}

pub(super) fn launch_in(contexts: &mut Contexts, managed: &ManagedDevice, context: u64, hold: HoldPlan) {
    let launched = with_thread(|thread| {
        // If the driver calls one launch function from another, that is not a launch of the program.
        let _inside = thread.enter();
        let resources = contexts.ready(context);
        resources.is_some_and(|resources| resources.launch(hold.ticket, hold.limits(), HostClock.now_ns()))
    });
    if launched {
        LAUNCHED.fetch_add(1, Relaxed);
    } else {
        managed.device.hold_kernels.with(|state| state.launch_failed(hold.ticket));
        contexts.set_prepared(context, None);
    }
}
