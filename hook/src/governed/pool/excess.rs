//! Pools that the driver has made larger than the limit allows: an allocation relied on freed memory that the driver did not use again.

use std::time::{Duration, Instant};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::CUstream;
use sluice_hook_core::pools::PoolId;

use crate::captures::CAPTURES;
use crate::governed::pool_charges::{settle_by_size, trim};
use crate::process::ManagedDevice;
use crate::{gpu, hold_kernel, preempt, real};

/// A stream in a call, and whether null means the thread's own default stream.
pub(super) type OnStream = (CUstream, bool);

/// How long an allocation waits for its stream. A stream may wait for the thread that allocates, so the wait must end.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The pause between two queries of the stream: at first as long as a query takes, then at most a hundredth of a quantum.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];

/// Has a pool give back the memory that was allocated in the stream and freed again. `false` if the GPU does not reach the free in time:
/// then the pool stays above the limit until it does.
pub(super) fn give_back(managed: &ManagedDevice, id: PoolId, stream: OnStream) -> bool {
    let is_reached =
        hold_kernel::may_wait(|| gpu::with_relaxed_capture_mode(|| wait_for(stream) && synchronize(stream)));
    trim(id);
    settle_by_size(managed, id, 0) != Some(false) && is_reached
}

/// Waits for a stream that has no work left, so without delay, unless another thread submits to it at this moment. The driver gives back
/// only memory whose free a wait of the host has shown; a query is not enough (H200, driver 580.159).
fn synchronize((stream, per_thread): OnStream) -> bool {
    let table = real::table();
    let wait = if per_thread { table.cuStreamSynchronize_ptsz } else { table.cuStreamSynchronize };
    // SAFETY: the program is using the stream in this call, so it is alive.
    wait.is_some_and(|wait| unsafe { wait(preempt::stands_for(stream, per_thread)) } == CUresult::SUCCESS)
}

/// Waits until the GPU has reached the end of the stream; `false` if that takes too long, or if a query could end a capture.
fn wait_for((stream, per_thread): OnStream) -> bool {
    let table = real::table();
    let query = if per_thread { table.cuStreamQuery_ptsz } else { table.cuStreamQuery };
    let Some(query) = query else { return false };
    let (begun, [mut pause, longest]) = (Instant::now(), PAUSES);
    while !CAPTURES.any() && begun.elapsed() < MAX_WAIT {
        // SAFETY: the program is using the stream in this call, so it is alive.
        match unsafe { query(preempt::stands_for(stream, per_thread)) } {
            CUresult::ERROR_NOT_READY => {}
            result => return result == CUresult::SUCCESS,
        }
        std::thread::sleep(pause);
        pause = longest.min(pause * 2);
    }
    false
}
