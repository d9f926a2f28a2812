//! The memory that each process has on a GPU, as NVML reports it: contexts, modules and rounding included.
//!
//! The node agent reads it for all pod-managers of a node. A pod-manager without an agent reads it itself.
#![forbid(unsafe_code)]

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeMap;

/// One process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Its number in the pid namespace of the reader.
    pub pid: i32,
    /// Its memory on the GPU; `None` if the driver does not report it.
    pub bytes: Option<u64>,
}

/// Reads the memory of all processes on a GPU, in ascending order of their pids. A process that computes and draws is in two lists of
/// the driver with the same amount.
///
/// # Errors
/// The driver does not report processes, or does not answer.
pub fn read(device: &Device<'_>) -> Result<Vec<ProcessMemory>, NvmlError> {
    let mut found: BTreeMap<i32, Option<u64>> = BTreeMap::new();
    let computing = device.running_compute_processes()?;
    for process in computing.into_iter().chain(device.running_graphics_processes()?) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let pid = i32::try_from(process.pid).unwrap_or(0);
        let known = found.entry(pid).or_insert(bytes);
        *known = (*known).max(bytes);
    }
    Ok(found.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes }).collect())
}
