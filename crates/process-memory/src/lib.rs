//! The memory that each process has on a GPU, as NVML reports it: contexts, modules and rounding included.
//!
//! The node agent reads it for all pod-managers of a node. A pod-manager without an agent reads it itself.
#![forbid(unsafe_code)]

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use std::collections::BTreeMap;
use std::ffi::CStr;

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
    merge(device.running_compute_processes()?, device.running_graphics_processes())
}

/// Reads the energy that the GPU has drawn since its driver was loaded, millijoules. `None`: the GPU or its driver does not count it.
#[must_use]
pub fn read_energy(device: &Device<'_>) -> Option<u64> {
    device.total_energy_consumption().ok()
}

/// The symbol by which the hook is recognised.
const HOOK_MARKER: &CStr = c"sluice_hook_marker";

/// Checks that NVML shows this process the whole GPU. Call it before NVML is initialised.
///
/// # Errors
/// The hook is loaded in this process, in words. It shows only the processes and the memory of one client. `SLUICE_DISABLE` makes no
/// difference here: beside the node's settings the hook ignores it.
pub fn check_unfiltered() -> Result<(), String> {
    check_absent(HOOK_MARKER)
}

fn check_absent(marker: &CStr) -> Result<(), String> {
    if !sluice_sys::symbols::is_defined(marker) {
        return Ok(());
    }
    Err("Sluice's hook is loaded in this process (LD_PRELOAD or /etc/ld.so.preload) and filters what NVML shows: start it without the \
         hook"
        .to_owned())
}

/// Merges the two lists. A GPU that cannot draw has no list of processes that draw.
fn merge(
    computing: Vec<ProcessInfo>,
    drawing: Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessMemory>, NvmlError> {
    let drawing = match drawing {
        Err(NvmlError::NotSupported) => Vec::new(),
        other => other?,
    };
    let mut found: BTreeMap<i32, Option<u64>> = BTreeMap::new();
    for process in computing.into_iter().chain(drawing) {
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

#[cfg(test)]
mod tests;
