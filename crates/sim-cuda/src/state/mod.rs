//! The objects on which the driver's functions work.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod chunk;
pub(crate) mod context;
pub(crate) mod driver;
pub(crate) mod graph;
pub(crate) mod groups;
pub(crate) mod host;
pub(crate) mod ioctl;
pub(crate) mod ipc;
pub(crate) mod limits;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod words;

use sluice_driver_api::CUresult;
use sluice_sim::client::GpuError;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic of another thread, which would be a bug.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's error for a refusal of the simulated GPU.
pub(crate) fn status_of(error: GpuError) -> CUresult {
    match error {
        GpuError::OutOfMemory | GpuError::Exhausted => CUresult::ERROR_OUT_OF_MEMORY,
        GpuError::Refused(_) => CUresult::ERROR_UNKNOWN,
        GpuError::Unavailable | GpuError::Gone(_) => CUresult::ERROR_DEVICE_UNAVAILABLE,
    }
}
