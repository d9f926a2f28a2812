//! Waits of the host for the GPU: they show which streams are idle.
//!
//! A thread that is cancelled meanwhile ends when the driver's call has returned and the end of the wait is counted.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::{CUcontext, CUstream};
use sluice_hook_core::device::{HostWait, UnnamedWait};
use sluice_hook_core::platform::{Stream, StreamKind};
use sluice_hook_core::streams::WaitTarget;
use sluice_hook_core::thread_state::ThreadState;

use super::pool_charges::after_wait;
use crate::gpu;
use crate::gpu_driver::GpuDevice;
use crate::guard::{Uncancelled, guarded};
use crate::hold_kernel;
use crate::process::{self, ManagedDevice};
use crate::thread_state;

/// `cuCtxSynchronize` of the current context, or of the one given.
pub(crate) fn context(context: Option<CUcontext>, real: impl FnOnce() -> CUresult) -> CUresult {
    hold_kernel::before_wait(true);
    observed(real, || {
        let context =
            context.filter(|context| !context.is_null()).map(|context| context.expose_provenance() as u64);
        context.or_else(gpu::current_context).map(WaitTarget::Context)
    })
}

/// `cuStreamSynchronize`.
pub(crate) fn stream((stream, per_thread): (CUstream, bool), real: impl FnOnce() -> CUresult) -> CUresult {
    let stream =
        thread_state::with_thread(|thread| Stream::new(stream.addr() as u64, per_thread, thread.id()));
    hold_kernel::before_wait(false);
    observed(real, || waited_for(stream))
}

/// `cuEventSynchronize`. The stream on which the event was recorded is not known, so no stream is marked as finished; the tracker finds
/// out.
pub(crate) fn event(real: impl FnOnce() -> CUresult) -> CUresult {
    hold_kernel::before_wait(false);
    unnamed(real, GpuDevice::begin_event_wait)
}

/// A synchronous copy, or another function that may wait for the GPU. Only copies to host memory are certain to wait: others may be staged,
/// or be ordered by the GPU alone.
pub(crate) fn copy(name: &'static str, per_thread: bool, real: impl FnOnce() -> CUresult) -> CUresult {
    if !name.contains("toH") {
        if name.starts_with("cuMemcpy") {
            hold_kernel::before_copy(|| name.contains("HtoD") || name.contains("HtoA"));
            return unnamed(real, GpuDevice::begin_copy);
        }
        hold_kernel::before_wait(true);
        return blocking(real);
    }
    hold_kernel::before_wait(false);
    let stream = thread_state::with_thread(|thread| Stream::new(0, per_thread, thread.id()));
    observed(real, || waited_for(stream))
}

/// All work before the wait has finished when the wait for this stream returns.
fn waited_for(stream: Stream) -> Option<WaitTarget> {
    match stream.kind {
        StreamKind::Created => Some(WaitTarget::Created(stream)),
        StreamKind::Legacy => gpu::current_context().map(WaitTarget::Legacy),
        StreamKind::PerThread => gpu::current_context().map(|context| WaitTarget::Stream(context, stream)),
    }
}

/// Calls `real`, which may wait for the GPU.
pub(super) fn blocking(real: impl FnOnce() -> CUresult) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let begun = guarded(None, || {
        let managed = process::device_for_call()?;
        managed.device.begin_blocking();
        Some(managed)
    });
    let result = real();
    if let Some(managed) = begun {
        guarded((), || managed.device.end_blocking());
    }
    after_wait();
    result
}

/// Calls `real`, which may wait for work that is not known, and reports the wait to the device before and after it.
fn unnamed(real: impl FnOnce() -> CUresult, begin: impl FnOnce(&GpuDevice, u32) -> UnnamedWait) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let begun = guarded(None, || {
        let managed = process::device_for_call()?;
        Some((managed, begin(&managed.device, calling_thread())))
    });
    let result = real();
    if let Some((managed, wait)) = begun {
        guarded((), || managed.device.end_unnamed_wait(wait, result == CUresult::SUCCESS));
    }
    after_wait();
    result
}

/// The number of the calling thread.
fn calling_thread() -> u32 {
    thread_state::with_thread(ThreadState::id)
}

/// Calls `real`, which may wait for any GPU.
pub(super) fn blocking_all(real: impl FnOnce() -> CUresult) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let begun: Vec<_> = guarded(Vec::new(), || {
        let begin = |managed: &&ManagedDevice| _ = managed.device.begin_blocking();
        process::devices().inspect(begin).collect()
    });
    let result = real();
    guarded((), || begun.into_iter().for_each(|managed| managed.device.end_blocking()));
    result
}

/// Calls `real`, and reports the wait to the device before and after it.
fn observed(real: impl FnOnce() -> CUresult, what: impl FnOnce() -> Option<WaitTarget>) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let begun: Option<(&'static ManagedDevice, HostWait)> = guarded(None, || {
        let managed = process::device_for_call()?;
        Some((managed, managed.device.begin_wait(what()?, calling_thread())))
    });
    let result = real();
    if let Some((managed, wait)) = begun {
        guarded((), || managed.device.end_wait(wait, result == CUresult::SUCCESS));
    }
    after_wait();
    result
}
