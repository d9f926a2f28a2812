//! The hook's decisions, in safe Rust: launch gate, grant acquisition, idle tracking, memory accounting, hold kernels.
//!
//! Nothing in this crate calls the driver, a socket or a clock. These are behind the traits of [`platform`]. The crate `hook`
//! implements the traits in the process that loaded it; the unit tests implement them as fakes.
//!
//! * [`device::Device`]: one GPU of this process. Launches pass its [`launch_gate::LaunchGate`]; a launch without a valid
//!   grant acquires one; a tracker thread ends grants.
//! * [`memory::MemoryAccount`], [`allocations::AllocationTable`]: bytes charged to the client, and for which allocation.
//! * [`residency::ResidencyGate`], [`residency::ChunkTable`]: memory that may leave the GPU, and the calls that may use it.
//! * [`hold_kernel::HoldKernels`]: when to keep the GPU switched to a latency-critical process, and for how long.
//! * [`burst_admission::BurstAdmission`]: when launches leave the GPU to clients with an earlier deadline.
//! * [`host_bound::HostBoundTest`]: which time slices best-effort clients should have beside this process.
//! * [`latency::LatencyMeter`]: how long steps and requests of a latency-critical process take.
//! * [`deadline_polling::DeadlinePolling`]: when a thread polls for the end of a grant instead of sleeping.
//! * [`group_recovery::Recovery`]: the order of controls that recover channel groups without a manager.
//! * [`outcome::Outcome`]: each governed call is governed, bypassed for a named reason, or refused.
//!
//! ```
//! use sluice_hook_core::memory::visible_memory;
//!
//! // A client with a limit of 10 bytes that uses 3 sees 7 of 10 bytes free, on a GPU of 1000 bytes.
//! assert_eq!(visible_memory(3, 10, 100, 1000), (7, 10));
//! ```

#![forbid(unsafe_code)]

pub mod allocations;
pub mod array_size;
pub mod burst_admission;
pub mod captures;
pub mod config;
pub mod deadline_polling;
pub mod device;
pub mod event_pool;
#[cfg(test)]
mod fakes;
mod gpu_time_estimate;
pub mod group_recovery;
pub mod hold_kernel;
pub mod host_bound;
pub mod latency;
pub mod launch_gate;
pub mod memory;
pub mod outcome;
pub mod period_predictor;
pub mod platform;
pub mod pools;
pub mod residency;
pub mod retain_count;
pub mod streams;
pub mod thread_state;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic while it was locked is reported elsewhere, and the hook goes on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
