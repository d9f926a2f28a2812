//! Small copies between pinned host memory and the GPU, made by a kernel in place of a copy engine.
//!
//! A neighbour that copies, allocates or frees keeps a copy engine for up to one of its time slices. `sluice_hook_core::hold_kernel` decides
//! whether copies of a request avoid that. They always do while the manager says that memory of others moves. The kernel runs in the program's
//! stream, so the order of commands stays the same. A copy that the kernel cannot make exactly as the driver would is left to the driver, and
//! counted by its reason.

mod counts;
mod memory;
mod plain_copy;

use std::sync::atomic::Ordering::Relaxed;

use sluice_driver_api::types::*;
use sluice_hook_core::platform::{Clock, Stream, StreamKind, TokenLink};

use crate::captures::CAPTURES;
use crate::clock::HostClock;
use crate::guard::guarded;
use crate::hold_kernel;
use crate::process::ManagedDevice;
use crate::thread_state::with_thread;
use crate::{fork, gpu, preempt};
pub(crate) use counts::counts;
use counts::{MADE, Refusal};
pub(crate) use plain_copy::PlainCopy;

/// The largest copy that the kernel makes. From there on a copy takes so long that the time slices of copy engines matter little.
const MAX_BYTES: usize = 1 << 20;

/// Makes the copy on `stream` by a kernel if that is chosen and possible. `false` if the driver is to make it.
#[inline]
pub(crate) fn make(stream: (CUstream, bool), copy: impl FnOnce() -> Option<PlainCopy>) -> bool {
    let chosen = |managed: &&ManagedDevice| {
        managed.device.hold_kernels.may_copy_by_kernel() || managed.device.link.memory_moves()
    };
    match hold_kernel::device_of_call().filter(chosen) {
        Some(managed) => copy().is_some_and(|copy| try_make(managed, stream, copy)),
        None => false,
    }
}

/// Whether a kernel makes the copies now: because requests are shorter with it, or because memory of others moves. A move is over before
/// requests show that.
fn is_chosen(managed: &ManagedDevice) -> bool {
    let link = &managed.device.link;
    managed.device.hold_kernels.copies_by_kernel(HostClock.now_ns())
        || link.memory_moves() && link.decides_memory()
}

#[cold]
fn try_make(managed: &'static ManagedDevice, stream: (CUstream, bool), copy: PlainCopy) -> bool {
    guarded(false, || {
        if !is_chosen(managed) || fork::has_forked() {
            return false;
        }
        match launch(managed, stream, copy) {
            Ok(()) => {
                managed.device.hold_kernels.copy_made_by_kernel();
                MADE.fetch_add(1, Relaxed);
                true
            }
            Err(refusal) => {
                refusal.count();
                false
            }
        }
    })
}

fn launch(
    managed: &'static ManagedDevice,
    (stream, per_thread): (CUstream, bool),
    copy: PlainCopy,
) -> Result<(), Refusal> {
    if !(1..=MAX_BYTES).contains(&copy.bytes) {
        return Err(Refusal::Size);
    }
    if CAPTURES.any() {
        return Err(Refusal::Capturing);
    }
    let link = &managed.device.link;
    // The kernel needs the multiprocessors, for which this process may have to wait.
    let has_gpu = link.deadline_ticks() == u64::MAX && link.critical_contenders().is_some();
    if !has_gpu || managed.device.would_wait() {
        return Err(Refusal::NoGrant);
    }
    let context = gpu::current_context().ok_or(Refusal::Stream)?;
    let named = with_thread(|thread| Stream::new(stream.addr() as u64, per_thread, thread.id()));
    let stream = driver_stream(stream, named, context).ok_or(Refusal::Stream)?;
    let kernel = hold_kernel::copy_kernel(context).ok_or(Refusal::NotPrepared)?;
    if managed.device.may_have_work_besides(named) {
        return Err(Refusal::Busy);
    }
    memory::check(copy, context)?;
    with_thread(|thread| {
        // If the driver makes the copy in a call of the program, it is not the program's.
        let _inside = thread.enter().ok_or(Refusal::Stream)?;
        // SAFETY: the kernel was loaded in the current context, to which the stream belongs. Both ends are whole in memory that this context
        // can use, and the program keeps them until the copy has ended, as for the driver's.
        let launched = unsafe { kernel.launch(stream, copy.to, copy.from, copy.bytes) };
        if launched { Ok(()) } else { Err(Refusal::Driver) }
    })
}

/// The stream as a launch names it. `None` if it does not belong to the current context, or commands for it may wait in the hook.
fn driver_stream(stream: CUstream, named: Stream, context: u64) -> Option<CUstream> {
    if preempt::is_engaged() {
        return None;
    }
    match named.kind {
        StreamKind::Created => (gpu::stream_context(stream).ok().flatten()? == context).then_some(stream),
        StreamKind::Legacy | StreamKind::PerThread => Some(gpu::pointer(named.driver_handle())),
    }
}
