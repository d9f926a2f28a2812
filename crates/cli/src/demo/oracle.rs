//! The source of the measurements: the GPU itself, never the manager or the tenants.
//!
//! A simulated GPU has a ledger. On a real GPU all kernels of the tenants take the same time, and at the end a tenant's buffer proves
//! how many ran, so shares are counted in kernels. Memory is NVML's figure for each process. In a container NVML often does not know
//! the process ids of this namespace; then the growth of the whole device's memory is used. That is unambiguous, because tenants
//! start one after the other and only one of them allocates later.

use std::collections::BTreeMap;

use anyhow::Context;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use sluice_load::driver::Driver;
use sluice_sim::ledger::ProcessLedger;
use sluice_test_bed::SimulatedGpu;

use super::report::SIMULATED;
use super::tenants::DemoTenant;

/// NVML counts blocks of 2 MiB, and each smaller allocation may open another block. The driver's own memory also grows a little
/// while a process runs.
const NVML_MEMORY_SLACK: u64 = 32 << 20;

/// Measurements of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TenantReading {
    /// GPU time within the window, nanoseconds.
    pub(crate) gpu_ns: u64,
    /// Device memory held, bytes, without the driver's own.
    pub(crate) memory: u64,
    /// Highest amount that it has held.
    pub(crate) memory_peak: u64,
    /// Kernels submitted to the GPU since the process began.
    pub(crate) submitted: u64,
    /// Kernels that ran to their end.
    pub(crate) completed: u64,
}

impl TenantReading {
    /// The kernels of the hook are no kernels of the tenant.
    fn of_simulator(row: &ProcessLedger, gpu_ns: u64) -> Self {
        let of_hook = row.hook_kernels();
        Self {
            gpu_ns,
            memory: row.memory_bytes,
            memory_peak: row.memory_peak_bytes,
            submitted: row.kernels_submitted.saturating_sub(of_hook),
            completed: row.kernels_completed.saturating_sub(of_hook),
        }
    }
}

/// Measurements of all tenants in a window of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OracleReading {
    /// By process id.
    pub(crate) tenants: BTreeMap<i32, TenantReading>,
    /// Part of the window in which the GPU worked, 0..=1.
    pub(crate) busy: f64,
}

impl OracleReading {
    /// Measurements of a process; zero if it never used the GPU.
    pub(crate) fn of(&self, pid: i32) -> TenantReading {
        self.tenants.get(&pid).copied().unwrap_or_default()
    }
}

/// A source of measurements that is independent of tenants and manager.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// Name of the GPU in the result: `sim`, or the device's name.
    pub(crate) gpu: String,
    /// Upper bound of the error of the memory figures, bytes.
    pub(crate) memory_slack: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Simulator(SimulatedGpu),
    Device(Box<Device>),
}

impl Oracle {
    /// The ledger of a simulated GPU, or NVML for device 0 of the system's driver.
    pub(crate) fn find(simulated: Option<SimulatedGpu>) -> anyhow::Result<Self> {
        if let Some(gpu) = simulated {
            return Ok(Self { gpu: SIMULATED.to_owned(), memory_slack: 0, source: Source::Simulator(gpu) });
        }
        let uuid = Driver::open().and_then(|driver| driver.device_uuid(0)).context("the real GPU")?;
        let nvml = Nvml::init().context("NVML, which is needed to see what a real GPU does")?;
        let (gpu, used_at_last_start) = {
            let device =
                nvml.device_by_uuid(uuid.as_str()).with_context(|| format!("NVML does not know {uuid}"))?;
            (device.name()?, device.memory_info()?.used)
        };
        let device = Device { nvml, uuid, used_at_last_start, tenants: Vec::new(), utilization: (0, 0) };
        Ok(Self { gpu, memory_slack: NVML_MEMORY_SLACK, source: Source::Device(Box::new(device)) })
    }

    /// Registers a tenant that has started: the driver's own memory and the tenant's first memory are allocated. No other tenant has
    /// allocated since the last call.
    pub(crate) fn register(&mut self, tenant: &DemoTenant) -> anyhow::Result<()> {
        match &mut self.source {
            Source::Simulator(_) => Ok(()),
            Source::Device(device) => device.register(tenant),
        }
    }

    /// Reads the window between two times of CLOCK_MONOTONIC, nanoseconds.
    pub(crate) fn read(
        &mut self,
        tenants: &[DemoTenant],
        from_ns: u64,
        to_ns: u64,
    ) -> anyhow::Result<OracleReading> {
        match &mut self.source {
            Source::Simulator(gpu) => read_simulator(gpu, from_ns, to_ns),
            Source::Device(device) => device.read(tenants),
        }
    }
}

fn read_simulator(gpu: &SimulatedGpu, from_ns: u64, to_ns: u64) -> anyhow::Result<OracleReading> {
    let window = gpu.window(from_ns, to_ns)?;
    let ledger = gpu.ledger()?;
    let length = to_ns.saturating_sub(from_ns).max(1);
    let tenants = ledger.processes.iter().map(|row| {
        let gpu_ns = window.gpu_ns.get(&row.pid).copied().unwrap_or(0);
        (row.pid, TenantReading::of_simulator(row, gpu_ns))
    });
    Ok(OracleReading { tenants: tenants.collect(), busy: window.busy_ns as f64 / length as f64 })
}

/// NVML's view of one device.
#[derive(Debug)]
struct Device {
    nvml: Nvml,
    uuid: String,
    /// Bytes in use on the device when the last tenant had started.
    used_at_last_start: u64,
    tenants: Vec<TenantMemory>,
    /// Sum and number of utilisation samples, percent.
    utilization: (u64, u64),
}

/// Memory of one tenant.
#[derive(Debug)]
struct TenantMemory {
    pid: i32,
    runs_into_limit: bool,
    /// In use at its start, its driver's own memory included.
    at_start: u64,
    /// Of that, allocated by the tenant.
    held_at_start: u64,
    /// Allocated by the tenant at the last sample, and at most.
    held: u64,
    peak: u64,
}

impl Device {
    fn register(&mut self, tenant: &DemoTenant) -> anyhow::Result<()> {
        let used = self.device_used()?;
        let gained = used.saturating_sub(self.used_at_last_start);
        self.used_at_last_start = used;
        let pid = tenant.pid();
        let held = tenant.plan.holds_at_start;
        self.tenants.push(TenantMemory {
            pid,
            runs_into_limit: tenant.plan.runs_into_limit,
            at_start: self.used_by_processes()?.get(&pid).copied().unwrap_or(gained),
            held_at_start: held,
            held,
            peak: held,
        });
        Ok(())
    }

    /// Takes a sample and returns the measurements so far. Kernel counts are the tenants' own until the end.
    fn read(&mut self, tenants: &[DemoTenant]) -> anyhow::Result<OracleReading> {
        let gained = self.device_used()?.saturating_sub(self.used_at_last_start);
        let percent = self.nvml.device_by_uuid(self.uuid.as_str())?.utilization_rates()?.gpu;
        if !tenants.iter().any(|tenant| tenant.load.final_record.is_some()) {
            self.utilization = (self.utilization.0 + u64::from(percent), self.utilization.1 + 1);
        }
        let busy = self.utilization.0 as f64 / self.utilization.1.max(1) as f64 / 100.0;
        let mut reading = OracleReading { busy, ..OracleReading::default() };
        let used = self.used_by_processes()?;
        for memory in &mut self.tenants {
            memory.update(used.get(&memory.pid).copied(), gained);
            let Some(tenant) = tenants.iter().find(|tenant| tenant.pid() == memory.pid) else { continue };
            let (submitted, completed) = tenant.claimed_kernels();
            let gpu_ns = completed * u64::from(tenant.plan.kernel_us) * 1000;
            let of_tenant =
                TenantReading { gpu_ns, memory: memory.held, memory_peak: memory.peak, submitted, completed };
            reading.tenants.insert(memory.pid, of_tenant);
        }
        Ok(reading)
    }

    fn device_used(&self) -> anyhow::Result<u64> {
        Ok(self.nvml.device_by_uuid(self.uuid.as_str())?.memory_info()?.used)
    }

    /// Bytes that each process uses, as far as NVML knows the process ids.
    fn used_by_processes(&self) -> anyhow::Result<BTreeMap<i32, u64>> {
        let processes = self.nvml.device_by_uuid(self.uuid.as_str())?.running_compute_processes()?;
        let used = processes.into_iter().filter_map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some((i32::try_from(process.pid).ok()?, bytes)),
            UsedGpuMemory::Unavailable => None,
        });
        Ok(used.collect())
    }
}

impl TenantMemory {
    /// `used` by the process, if NVML knows; `gained` by the device since all tenants had started.
    fn update(&mut self, used: Option<u64>, gained: u64) {
        let more = match used {
            Some(used) => used.saturating_sub(self.at_start),
            None if self.runs_into_limit => gained,
            None => 0,
        };
        self.held = self.held_at_start + more;
        self.peak = self.peak.max(self.held);
    }
}

#[cfg(test)]
mod tests;
