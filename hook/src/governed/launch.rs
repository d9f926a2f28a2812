//! Launches pass the launch gate, and other commands that run on the multiprocessors.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::device::LaunchPass;
use sluice_hook_core::outcome::{Bypass, Outcome};
use sluice_hook_core::platform::{Stream, StreamKind, TokenLink};
use sluice_hook_core::thread_state::ThreadState;

use crate::captures::CAPTURES;
use crate::counters;
use crate::guard::guarded;
use crate::hold_kernel;
use crate::process::{self, ManagedDevice};
use crate::thread_state;
use crate::tracker::device_for_launch;

/// How a launch goes on. Its end ends the launch.
enum Admission {
    /// Its stream is known: the fast path.
    Passed(#[expect(dead_code, reason = "dropped when the launch has been submitted")] LaunchPass<'static>),
    /// It was noted, or had to wait for a grant: the slow path.
    Noted(&'static ManagedDevice, Stream, #[expect(dead_code, reason = "as above")] LaunchPass<'static>),
    /// The launch gate does not apply to it.
    Bypassed,
}

/// Calls `real` when the launch gate lets the launch on `stream` pass.
///
/// `real` is called in one place, so that the driver's call and its arguments stay in this function.
#[inline]
pub(crate) fn call((stream, per_thread): (CUstream, bool), real: impl FnOnce() -> CUresult) -> CUresult {
    thread_state::with_thread(|thread| {
        // The driver may call one launch function from another; the outer one has already passed.
        let inside = thread.enter();
        let admission = match inside {
            Some(_) => admit(Stream::new(stream.addr() as u64, per_thread, thread.id()), thread),
            None => bypassed(Bypass::Nested),
        };
        let result = real();
        if let Admission::Noted(managed, stream, _) = admission {
            after_noted(managed, stream, result);
        }
        result
    })
}

/// Calls `real`, which submits a command to `stream` that runs on the multiprocessors. It needs a grant as a launch does. A process with an
/// unlimited grant does not wait for one: there `real` reports the command as work, and it begins no request.
#[inline]
pub(crate) fn command(stream: (CUstream, bool), real: impl FnOnce() -> CUresult) -> CUresult {
    let has_unlimited_grant =
        process::device_for_call().is_some_and(|managed| managed.device.link.deadline_ticks() == u64::MAX);
    if has_unlimited_grant { real() } else { call(stream, real) }
}

#[inline]
fn admit(stream: Stream, thread: &ThreadState) -> Admission {
    let Some(managed) = process::only_device() else { return admit_by_context(stream, thread) };
    match managed.device.try_launch(stream, thread) {
        Ok(pass) => Admission::Passed(pass),
        Err(pass) => acquire(managed, stream, thread, pass),
    }
}

/// Admits a launch while no device is known to be the only one.
#[cold]
fn admit_by_context(stream: Stream, thread: &ThreadState) -> Admission {
    match guarded(Err(Bypass::InternalError), device_for_launch) {
        Ok(managed) => match managed.device.try_launch(stream, thread) {
            Ok(pass) => Admission::Passed(pass),
            Err(pass) => acquire(managed, stream, thread, pass),
        },
        Err(reason) => bypassed(reason),
    }
}

#[cold]
fn acquire(
    managed: &'static ManagedDevice,
    stream: Stream,
    thread: &ThreadState,
    pass: LaunchPass<'static>,
) -> Admission {
    let outcome = guarded(Outcome::Bypassed(Bypass::InternalError), || {
        hold_kernel::leave_gpu_if_launch_waits(managed);
        managed.device.acquire(stream, thread, pass)
    });
    match outcome {
        // The first launch of a request always takes this path: it begins a burst, which has to be noted.
        Outcome::Governed(pass) => {
            hold_kernel::before_noted_launch(managed);
            Admission::Noted(managed, stream, pass)
        }
        Outcome::Bypassed(reason) => bypassed(reason),
        // A launch is never refused; if it were, the driver's result would apply.
        Outcome::Refused => Admission::Bypassed,
    }
}

/// Called before the launch stops counting as in flight, so that the drain sees what is recorded here.
#[cold]
fn after_noted(managed: &'static ManagedDevice, stream: Stream, result: CUresult) {
    hold_kernel::after_noted_launch(managed);
    if CAPTURES.any() && stream.kind != StreamKind::Created && result == CUresult::SUCCESS {
        guarded((), || managed.device.launched_during_capture(stream));
    }
}

#[cold]
fn bypassed(reason: Bypass) -> Admission {
    counters::count_bypass(reason);
    Admission::Bypassed
}
