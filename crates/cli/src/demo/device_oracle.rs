//! Measurements on a real GPU.
//!
//! GPU time: all kernels of the tenants take the same time, and at the end a tenant's buffer proves how many ran. So shares are
//! counted in kernels. Memory: NVML's figure for each process. In a container NVML often does not know the process ids of this
//! namespace; then the growth of the whole device's memory is used. That is unambiguous, because tenants start one after the other
//! and only one of them allocates later.

use anyhow::Context;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::oracle::{OracleReading, TenantReading};
use super::tenants::DemoTenant;

/// NVML counts blocks of 2 MiB, and each smaller allocation may open another block. The driver's own memory also grows a little
/// while a process runs.
pub(crate) const MEMORY_SLACK: u64 = 32 << 20;

/// NVML's view of one device.
#[derive(Debug)]
pub(crate) struct DeviceOracle {
    nvml: Nvml,
    uuid: String,
    name: String,
    /// Bytes in use on the device when the last tenant had started.
    device_used: u64,
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

impl DeviceOracle {
    /// Opens NVML for the device of this UUID.
    ///
    /// # Errors
    /// If NVML is missing or does not know the device.
    pub(crate) fn open(uuid: &str) -> anyhow::Result<Self> {
        let nvml = Nvml::init().context("NVML, which is needed to see what a real GPU does")?;
        let (name, device_used) = {
            let device = nvml.device_by_uuid(uuid).with_context(|| format!("NVML does not know {uuid}"))?;
            (device.name()?, device.memory_info()?.used)
        };
        Ok(Self { nvml, uuid: uuid.to_owned(), name, device_used, tenants: Vec::new(), utilization: (0, 0) })
    }

    /// The device's name.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// Registers a tenant that has started. No other tenant has allocated since the last call.
    pub(crate) fn register(&mut self, tenant: &DemoTenant) -> anyhow::Result<()> {
        let used = self.device_used_now()?;
        let gained = used.saturating_sub(self.device_used);
        self.device_used = used;
        let pid = tenant.process.pid();
        let held = tenant.plan.holds_at_start;
        self.tenants.push(TenantMemory {
            pid,
            runs_into_limit: tenant.plan.runs_into_limit,
            at_start: self.used_by(pid)?.unwrap_or(gained),
            held_at_start: held,
            held,
            peak: held,
        });
        Ok(())
    }

    /// Takes a sample and returns the measurements so far. Kernel counts are the tenants' own until the end.
    pub(crate) fn read(&mut self, tenants: &[DemoTenant]) -> anyhow::Result<OracleReading> {
        let gained = self.device_used_now()?.saturating_sub(self.device_used);
        let percent = self.nvml.device_by_uuid(self.uuid.as_str())?.utilization_rates()?.gpu;
        if !tenants.iter().any(|tenant| tenant.process.final_record.is_some()) {
            self.utilization = (self.utilization.0 + u64::from(percent), self.utilization.1 + 1);
        }
        let mut reading = OracleReading { busy: self.busy(), ..OracleReading::default() };
        for index in 0..self.tenants.len() {
            let now = self.tenants.get(index).map(|tenant| self.used_by(tenant.pid)).transpose()?.flatten();
            let Some(memory) = self.tenants.get_mut(index) else { continue };
            memory.update(now, gained);
            let Some(tenant) = tenants.iter().find(|tenant| tenant.process.pid() == memory.pid) else {
                continue;
            };
            let (submitted, completed) = tenant.claimed_kernels();
            let gpu_ns = completed * u64::from(tenant.plan.kernel_us) * 1000;
            let of_tenant =
                TenantReading { gpu_ns, memory: memory.held, memory_peak: memory.peak, submitted, completed };
            reading.tenants.insert(memory.pid, of_tenant);
        }
        Ok(reading)
    }

    fn busy(&self) -> f64 {
        self.utilization.0 as f64 / self.utilization.1.max(1) as f64 / 100.0
    }

    fn device_used_now(&self) -> anyhow::Result<u64> {
        Ok(self.nvml.device_by_uuid(self.uuid.as_str())?.memory_info()?.used)
    }

    /// Bytes that a process uses, if NVML knows the process id.
    fn used_by(&self, pid: i32) -> anyhow::Result<Option<u64>> {
        let processes = self.nvml.device_by_uuid(self.uuid.as_str())?.running_compute_processes()?;
        let process = processes.iter().find(|process| i32::try_from(process.pid) == Ok(pid));
        Ok(process.and_then(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        }))
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
