//! Use of a GPU, by process.

use super::mig::whole_gpu;
use super::processes::put_list;
use super::session::{info, ledger, socket};
use super::{Answer, Error, NO_INSTANCE, get, nvml, put};
use crate::border::Ptr;
use sluice_driver_api::types::{c_uint, c_ulonglong, c_void};
use sluice_sim::client;
use sluice_sim::ledger::ProcessLedger;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t` of version 2 and later.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

/// The structure's declared size, with its version in the highest byte.
fn version<T>(version: usize) -> usize {
    size_of::<T>() | (version << 24)
}

/// Number and reported memory of each process that has memory of the GPU.
pub(super) fn listed(device: Ptr<c_void>) -> Result<Vec<(c_uint, c_ulonglong)>, Error> {
    let (reports_memory, ledger) = (info(device)?.reports_memory, ledger(device)?);
    let is_listed = |row: &&ProcessLedger| !row.ended && row.reported_bytes > 0;
    let used = |row: &ProcessLedger| {
        (row.pid.cast_unsigned(), if reports_memory { row.reported_bytes } else { NOT_AVAILABLE })
    };
    Ok(ledger.processes.iter().filter(is_listed).map(used).collect())
}

fn processes(device: Ptr<c_void>, count: Ptr<c_uint>, out: Ptr<Process>) -> Answer {
    let entry = |(pid, used)| Process { pid, used, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE };
    put_list(count, out, &listed(device)?.into_iter().map(entry).collect::<Vec<_>>())
}

nvml! { once initialised:
    fn nvmlDeviceGetMemoryInfo(device: *mut c_void, out: *mut Memory) {
        let gpu = ledger(device)?.gpu;
        let free = gpu.memory_total - gpu.memory_used;
        put(out, Memory { total: gpu.memory_total, free, used: gpu.memory_used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, out: *mut MemoryV2) {
        // The caller sets only the first field.
        let version_field = get(out.cast::<c_uint>())?;
        if version_field as usize != version::<MemoryV2>(2) {
            return Err(Error::ArgumentVersionMismatch);
        }
        // nvml.h: in MIG mode, only callers with privileges learn it of the whole GPU.
        if whole_gpu(device).is_ok_and(|gpu| gpu.is_mig) {
            return Err(Error::NoPermission);
        }
        let gpu = ledger(device)?.gpu;
        let free = gpu.memory_total - gpu.memory_used;
        put(out, MemoryV2 { version: version_field, total: gpu.memory_total, reserved: 0, free, used: gpu.memory_used })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(device: *mut c_void, count: *mut c_uint, out: *mut Process) {
        processes(device, count, out)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: *mut c_void, count: *mut c_uint, out: *mut Process) {
        processes(device, count, out)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: *mut c_void, count: *mut c_uint, _out: *mut Process) {
        socket(device)?;
        put(count, 0)
    }

    fn nvmlDeviceGetUtilizationRates(device: *mut c_void, out: *mut Utilization) {
        /// The driver's sampling period is between a sixth of a second and one second.
        const PERIOD_NS: u64 = 1_000_000_000;
        let now = ledger(device)?.gpu.now_ns;
        let window = client::window(&socket(device)?.1, now.saturating_sub(PERIOD_NS), now);
        let busy = window.map_err(|_| Error::GpuIsLost)?.busy_ns;
        let gpu = c_uint::try_from(busy * 100 / PERIOD_NS).unwrap_or(100);
        put(out, Utilization { gpu, memory: 0 })
    }
    fn nvmlDeviceGetTotalEnergyConsumption(device: *mut c_void, out: *mut c_ulonglong) {
        super::mig::whole_gpu(device)?;
        put(out, ledger(device)?.gpu.energy_mj())
    }
}
