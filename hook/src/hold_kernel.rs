//! Gets a latency-critical process onto the GPU before its kernels are there: a kernel that holds the context there from the
//! request's first copy, or from the program's hint, until its own kernels have been submitted. When, and for how long, is
//! decided in `sluice_hook_core::hint`; here are the driver's part and the calls from the program's.
//!
//! Holds run on a stream of their own, through the real driver's functions only: they are no launches of the program's, take
//! none of its memory, and end by themselves.

mod active;
mod contexts;
mod page;
mod resources;
mod worker;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_hook_core::hold_kernel::{ContextState, HoldKernels, HoldPlan, HoldRefusal, Trigger};
use sluice_hook_core::outcome::Bypass;
use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::governed::guarded;
use crate::gpu;
use crate::process::{self, CAPTURES, Managed};
pub(crate) use active::ActiveHold;
use contexts::Contexts;
use resources::Resources;
use worker::ScheduledHold;

/// Some device of this process has been told that it may hold.
static ANYWHERE: AtomicBool = AtomicBool::new(false);

/// Holds launched, and holds released by the host.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);
static RELEASED: AtomicU64 = AtomicU64::new(0);
/// Of those launched, the ones that were planned for later; how late they were, in nanoseconds: all together, and the latest.
static PLANNED: AtomicU64 = AtomicU64::new(0);
static LATE_NS: AtomicU64 = AtomicU64::new(0);
static LATEST_NS: AtomicU64 = AtomicU64::new(0);
/// Planned for later, and not launched when their time had come: the request was there, or the last one not over.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// A hold that begins within this is taken for work by the manager from now on, so that it hands the GPU to nobody shortly before; one that
/// begins later is from its begin. So what a hint that no request follows costs others is bounded, however far ahead it was given.
const NOTICE_NS: u64 = 1_000_000;

/// How long after its end a hold is given up that neither a launch nor a wait has released.
const PATIENCE_NS: u64 = 1_000_000;

/// Why a hint was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldError {
    /// Nothing is governed here.
    Bypassed(Bypass),
    /// The process is not latency-critical.
    NotCritical,
    /// A capture is under way.
    Capturing,
    /// The context is being made ready; the next hint may find it so.
    Preparing,
    /// The driver or the context does not let us.
    Unable,
    /// The rules of `hint`.
    Refused(HoldRefusal),
}

/// A copy is about to be submitted.
#[inline]
pub(crate) fn before_copy(is_input: impl FnOnce() -> bool) {
    if let Some(managed) = device_for(HoldKernels::watches_copies) {
        on_copy(managed, is_input);
    }
}

#[cold]
fn on_copy(managed: &'static Managed, is_input: impl FnOnce() -> bool) {
    guarded((), || {
        if is_input() {
            request_arrives(managed, Trigger::Copy);
        }
    });
}

/// A request's first call is about to be made, perhaps: begins a hold, or tells that the request is there for which one was begun.
fn request_arrives(managed: &'static Managed, trigger: Trigger) {
    let hints = managed.device.hold_kernels();
    if hints.is_armed() || !hints.request_arrived(HostClock.now_ns()) {
        let _held = begin_hold(managed, trigger, 0);
    }
}

/// Calls `real`, which is a launch that has to be noted.
pub(crate) fn launch(managed: &'static Managed, real: impl FnOnce() -> CUresult) -> CUresult {
    let hints = managed.device.hold_kernels();
    guarded((), || {
        if refresh_contenders(managed).is_ok() && hints.watches_launches() {
            request_arrives(managed, Trigger::Launch);
        }
    });
    let result = real();
    if hints.watches_launches() || hints.is_active() {
        guarded((), || {
            let now = HostClock.now_ns();
            let first = hints.watches_launches();
            release_hold(managed, hints.launch_submitted(now));
            if first && ANYWHERE.load(Relaxed) {
                schedule_predicted(managed, now);
            }
        });
    }
    result
}

/// Has a hold launched before the next request, if that is known to come.
fn schedule_predicted(managed: &'static Managed, now_ns: u64) {
    if let Some(hold) = managed.device.hold_kernels().predict_next(now_ns)
        && let Some(context) = gpu::current_context()
    {
        worker::launch_later(ScheduledHold { managed, context, hold });
    }
}

/// The host is about to wait for the GPU: for everything of a context, or for a part.
#[inline]
pub(crate) fn before_wait(whole_context: bool) {
    if let Some(managed) = device_for(HoldKernels::is_active) {
        on_wait(managed, whole_context);
    }
}

#[cold]
fn on_wait(managed: &'static Managed, whole_context: bool) {
    guarded((), || release_hold(managed, managed.device.hold_kernels().host_wait_begins(whole_context)));
}

/// The program says that a request will be there in `lead_us`.
pub(crate) fn hint(lead_us: u32) -> Result<HoldPlan, HoldError> {
    guarded(Err(HoldError::Bypassed(Bypass::InternalError)), || {
        process::passing().map_err(HoldError::Bypassed)?;
        let managed = process::current_device().map_err(HoldError::Bypassed)?;
        let lead_ns = u64::from(lead_us) * 1000;
        let at_ns = HostClock.now_ns().saturating_add(lead_ns);
        let result = begin_hold(managed, Trigger::Hint, lead_ns);
        if let Err(
            HoldError::Preparing
            | HoldError::Unable
            | HoldError::Refused(HoldRefusal::NoContenders | HoldRefusal::NotWorthIt),
        ) = result
        {
            // A hold counts as work. Where there is none the others can still be told to keep theirs back.
            managed.device.link().announce_request(at_ns);
        }
        result
    })
}

/// Keeps holds away from a context that is about to end, perhaps; until dropped.
pub(crate) fn begin_context_end(context: u64) -> ContextEnd {
    let preparing = contexts::preparing();
    let mut contexts = contexts::lock();
    if let Some(resources) = contexts.ready(context) {
        // The end of the context would wait for a hold.
        let page = resources.page();
        for managed in process::devices().filter(|managed| managed.out.page().is_some_and(|out| out.is(page)))
        {
            release_hold(managed, managed.device.hold_kernels().host_wait_begins(true));
        }
    }
    ContextEnd { context, contexts, _preparing: preparing }
}

/// See [`context_may_end`].
pub(crate) struct ContextEnd {
    context: u64,
    contexts: MutexGuard<'static, Contexts>,
    _preparing: MutexGuard<'static, ()>,
}

impl ContextEnd {
    /// It has ended.
    pub(crate) fn ended(mut self) {
        if let Some(resources) = self.contexts.remove(self.context) {
            resources.page().give_back();
        }
    }
}

/// Gives up a hold that has ended by itself, with no request behind it, and counts those that are over. Called by the tracker from
/// time to time.
pub(crate) fn expire_and_count(managed: &Managed) {
    if managed.out.is_overdue() {
        managed.out.clear_expected_work(managed);
    }
    if managed.out.has_uncounted_hold()
        && let Some(page) = managed.out.page()
        && let Some(mut contexts) = contexts::try_lock()
        && let Some(resources) = contexts.all_ready().find(|resources| resources.page().is(page))
    {
        count(managed, resources);
    }
}

/// Counts the last hold of a context, whose time has passed.
fn count(managed: &Managed, resources: &mut Resources) {
    let Some(over) = resources.take_finished() else { return };
    managed.out.set_counted();
    managed.device.link().count_hold(over.held_ns);
    if let Some(seen) = over.seen {
        managed.device.hold_kernels().learn_times(seen);
    }
}

/// Counts for those who ask: holds launched, released, planned for later, by how much those were late in all and at most, in nanoseconds;
/// those that were planned in vain.
pub(crate) fn counts() -> [u64; 6] {
    [&LAUNCHED, &RELEASED, &PLANNED, &LATE_NS, &LATEST_NS, &MISSED].map(|count| count.load(Relaxed))
}

/// The device that a call of this thread concerns, if its hints `want` to know.
#[inline]
fn device_for(want: impl FnOnce(&HoldKernels) -> bool) -> Option<&'static Managed> {
    let managed = match process::only_device() {
        Some(managed) => managed,
        None if ANYWHERE.load(Relaxed) => process::device_for_call()?,
        None => return None,
    };
    want(managed.device.hold_kernels()).then_some(managed)
}

/// Tells the hints what the manager says, and whether this process may hold at all.
fn refresh_contenders(managed: &Managed) -> Result<(), HoldError> {
    let company = managed.device.link().critical_company();
    managed.device.hold_kernels().set_contenders(company.unwrap_or(0));
    match company {
        None => Err(HoldError::NotCritical),
        Some(0) => Err(HoldError::Refused(HoldRefusal::NoContenders)),
        Some(_) => {
            ANYWHERE.store(true, Relaxed);
            Ok(())
        }
    }
}

/// Begins a hold in the current context, if all agree.
fn begin_hold(managed: &'static Managed, trigger: Trigger, lead_ns: u64) -> Result<HoldPlan, HoldError> {
    if CAPTURES.any() {
        return Err(HoldError::Capturing);
    }
    refresh_contenders(managed)?;
    let hints = managed.device.hold_kernels();
    if !hints.is_allowed() {
        return Err(HoldError::Refused(HoldRefusal::Disabled));
    }
    let context = gpu::current_context().ok_or(HoldError::Bypassed(Bypass::NoContext))?;
    // Somebody else is at it: then this is not the request's first call, or the context is about to end.
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
    hints.expire_request(now);
    if hints.is_armed() {
        // Before the machine says yes: from then on another thread's launch may release.
        managed.out.set(resources.page());
    }
    let hold = hints.begin_request(trigger, now, lead_ns).map_err(HoldError::Refused)?;
    if hold.starts_ns <= now + NOTICE_NS {
        managed.out.expect_work(managed, hold.starts_ns + hold.timeout_ns + PATIENCE_NS);
        managed.out.expect_end(hold.starts_ns + hold.timeout_ns + PATIENCE_NS);
    }
    if hold.starts_ns > now {
        drop(contexts);
        worker::launch_later(ScheduledHold { managed, context, hold });
    } else {
        launch_in(&mut contexts, managed, context, hold);
    }
    Ok(hold)
}

/// Launches a hold whose time has come, if it is still wanted.
fn launch_scheduled(managed: &Managed, context: u64, hold: HoldPlan) {
    if CAPTURES.any() || refresh_contenders(managed).is_err() {
        return;
    }
    let mut contexts = contexts::lock();
    let hints = managed.device.hold_kernels();
    let Some(resources) = contexts.ready(context) else {
        // It has ended meanwhile: not even its handle may be given to the driver.
        hints.launch_failed(hold.ticket);
        return;
    };
    count(managed, resources);
    if hints.is_armed() {
        // As in `begin`: from then on a launch may release.
        managed.out.set(resources.page());
    }
    if hints.take_due(hold.ticket) {
        managed.out.expect_work(managed, hold.starts_ns + hold.timeout_ns + PATIENCE_NS);
        managed.out.expect_end(hold.starts_ns + hold.timeout_ns + PATIENCE_NS);
        let late_ns = HostClock.now_ns().saturating_sub(hold.starts_ns);
        PLANNED.fetch_add(1, Relaxed);
        LATE_NS.fetch_add(late_ns, Relaxed);
        LATEST_NS.fetch_max(late_ns, Relaxed);
        gpu::within(context, || launch_in(&mut contexts, managed, context, hold));
    } else {
        MISSED.fetch_add(1, Relaxed);
    }
}

fn launch_in(contexts: &mut Contexts, managed: &Managed, context: u64, hold: HoldPlan) {
    let launched = process::with_thread(|thread| {
        // Should the driver reach one launch function through another, that is no launch of the program's.
        let _inside = thread.enter();
        let resources = contexts.ready(context);
        resources.is_some_and(|resources| resources.launch(hold.ticket, hold.timeout_ns, HostClock.now_ns()))
    });
    if launched {
        LAUNCHED.fetch_add(1, Relaxed);
    } else {
        managed.device.hold_kernels().launch_failed(hold.ticket);
        contexts.set_unable(context);
    }
}

fn release_hold(managed: &Managed, ticket: Option<u32>) {
    if let (Some(ticket), Some(page)) = (ticket, managed.out.page()) {
        page.release(ticket, HostClock.now_ns());
        RELEASED.fetch_add(1, Relaxed);
        managed.out.clear_expected_work(managed);
    }
}
