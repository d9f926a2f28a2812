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
pub(crate) fn call(stream: CUstream, per_thread: bool, real: impl FnOnce() -> CUresult) -> CUresult {
    process::with_thread(|thread| {
        // The driver may call one launch function from another; the outer one has already passed.
        let Some(_inside) = thread.enter() else {
            process::count_bypass(Bypass::Nested);
            return real();
        };
        let stream = Stream::new(stream.addr() as u64, per_thread, thread.id());
        let Some(managed) = process::only_device() else { return first(stream, thread, real) };
        match managed.device.try_launch(stream, thread) {
            Ok(_pass) => real(),
            Err(pass) => slow(managed, stream, thread, pass, real),
        }
    })
}

/// A launch before the device is known to be the only one.
#[cold]
fn first(stream: Stream, thread: &ThreadState, real: impl FnOnce() -> CUresult) -> CUresult {
    let managed = guarded(Err(Bypass::InternalError), process::device_for_launch);
    match managed {
        Ok(managed) => match managed.device.try_launch(stream, thread) {
            Ok(_pass) => real(),
            Err(pass) => slow(managed, stream, thread, pass, real),
        },
        Err(reason) => {
            process::count_bypass(reason);
            real()
        }
    }
}

#[cold]
fn slow(
    managed: &'static ManagedDevice,
    stream: Stream,
    thread: &ThreadState,
    pass: LaunchPass<'static>,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let outcome =
        guarded(Outcome::Bypassed(Bypass::InternalError), || managed.device.acquire(stream, thread, pass));
    match outcome {
        // The first launch of a request always takes this path: it begins a burst, which has to be noted.
        Outcome::Governed(_pass) => hold_kernel::launch(managed, real),
        Outcome::Bypassed(reason) => {
            process::count_bypass(reason);
            real()
        }
        // A launch is never refused; if it were, the driver's result would apply.
        Outcome::Refused(_) => real(),
    }
}

/// The stream that each launch function names.
pub(crate) mod stream_of {
    use std::ffi::{c_int, c_uint, c_void};
    use std::ptr::null_mut;

    use sluice_driver_api::types::*;

    type Params = *mut *mut c_void;
    type U = c_uint;

    macro_rules! with_grid {
        ($($name:ident ($($extra:ident)?);)*) => { $(
            #[inline]
            #[expect(clippy::too_many_arguments, reason = "the driver's signature")]
            pub(crate) fn $name(
                _: CUfunction, _: U, _: U, _: U, _: U, _: U, _: U, _: U, stream: CUstream, _: Params, $(_: $extra)?
            ) -> CUstream {
                stream
            }
        )* };
    }

    with_grid! {
        cuLaunchKernel(Params);
        cuLaunchKernel_ptsz(Params);
        cuLaunchCooperativeKernel();
        cuLaunchCooperativeKernel_ptsz();
    }

    #[inline]
    pub(crate) fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        _: CUfunction,
        _: Params,
        _: Params,
    ) -> CUstream {
        // SAFETY: the program passes null, which the driver refuses, or a configuration that is readable.
        unsafe { config.as_ref() }.map_or(null_mut(), |config| config.hStream)
    }
    pub(crate) use cuLaunchKernelEx as cuLaunchKernelEx_ptsz;

    pub(crate) fn cuGraphLaunch(_: CUgraphExec, stream: CUstream) -> CUstream {
        stream
    }
    pub(crate) use cuGraphLaunch as cuGraphLaunch_ptsz;

    /// The launches of one call may go to several devices; the gate of the calling thread's device applies.
    pub(crate) fn cuLaunchCooperativeKernelMultiDevice(
        list: *mut CUDA_LAUNCH_PARAMS,
        count: c_uint,
        _: c_uint,
    ) -> CUstream {
        if count == 0 {
            return null_mut();
        }
        // SAFETY: the program passes null, which the driver refuses, or `count` readable entries.
        unsafe { list.as_ref() }.map_or(null_mut(), |first| first.hStream)
    }

    pub(crate) fn cuLaunch(_: CUfunction) -> CUstream {
        null_mut()
    }

    pub(crate) fn cuLaunchGrid(_: CUfunction, _: c_int, _: c_int) -> CUstream {
        null_mut()
    }

    pub(crate) fn cuLaunchGridAsync(_: CUfunction, _: c_int, _: c_int, stream: CUstream) -> CUstream {
        stream
    }
}
