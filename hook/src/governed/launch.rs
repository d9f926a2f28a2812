//! Launches pass the launch gate.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::device::LaunchPass;
use sluice_hook_core::outcome::{Bypass, Outcome};
use sluice_hook_core::platform::Stream;
use sluice_hook_core::thread_state::ThreadState;

use super::guarded;
use crate::hold_kernel;
use crate::process::{self, ManagedDevice};

/// Calls `real` when the launch gate lets the launch on `stream` pass.
#[inline]
pub(crate) fn call((stream, per_thread): (CUstream, bool), real: impl FnOnce() -> CUresult) -> CUresult {
    process::with_thread(|thread| {
        // The driver may call one launch function from another; the outer one has already passed.
        let Some(_inside) = thread.enter() else {
            process::count_bypass(Bypass::Nested);
            return real();
        };
        let stream = Stream::new(stream.addr() as u64, per_thread, thread.id());
        let managed = match process::only_device().map_or_else(device_of_context, Ok) {
            Ok(managed) => managed,
            Err(reason) => {
                process::count_bypass(reason);
                return real();
            }
        };
        match managed.device.try_launch(stream, thread) {
            Ok(_pass) => real(),
            Err(pass) => slow(managed, stream, thread, pass, real),
        }
    })
}

/// The device of a launch while no device is known to be the only one.
#[cold]
fn device_of_context() -> Result<&'static ManagedDevice, Bypass> {
    guarded(Err(Bypass::InternalError), process::device_for_launch)
}

#[cold]
fn slow(
    managed: &'static ManagedDevice,
    stream: Stream,
    thread: &ThreadState,
    pass: LaunchPass<'static>,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let outcome = guarded(Outcome::Bypassed(Bypass::InternalError), || {
        hold_kernel::leave_to_urgent_work(managed);
        managed.device.acquire(stream, thread, pass)
    });
    match outcome {
        // The first launch of a request always takes this path: it begins a burst, which has to be noted.
        Outcome::Governed(_pass) => hold_kernel::launch(managed, real),
        Outcome::Bypassed(reason) => {
            process::count_bypass(reason);
            real()
        }
        // A launch is never refused; if it were, the driver's result would apply.
        Outcome::Refused => real(),
    }
}
