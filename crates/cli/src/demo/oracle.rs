//! The source of the measurements: the GPU itself, never the manager or the tenants.

use std::collections::BTreeMap;

use anyhow::Context;
use sluice_load::driver::Driver;
use sluice_sim::module::HOLD;
use sluice_test_bed::SimulatedGpu;

use super::device_oracle::DeviceOracle;
use super::report::SIMULATED;
use super::tenants::DemoTenant;

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
pub(crate) enum Oracle {
    /// The simulated GPU's own ledger.
    Simulator(SimulatedGpu),
    /// NVML, and the proof of work in the tenants' buffers.
    Device(Box<DeviceOracle>),
}

impl Oracle {
    /// The ledger of a simulated GPU, or NVML for device 0 of the system's driver.
    ///
    /// # Errors
    /// If NVML does not answer.
    pub(crate) fn find(simulated: Option<SimulatedGpu>) -> anyhow::Result<Self> {
        match simulated {
            Some(gpu) => Ok(Self::Simulator(gpu)),
            None => {
                let uuid = Driver::open().and_then(|driver| driver.device_uuid(0)).context("the real GPU")?;
                Ok(Self::Device(Box::new(DeviceOracle::open(&uuid)?)))
            }
        }
    }

    /// Name of the GPU in the result: `sim`, or the device's name.
    pub(crate) fn gpu(&self) -> String {
        match self {
            Self::Simulator(_) => SIMULATED.to_owned(),
            Self::Device(device) => device.name(),
        }
    }

    /// Upper bound of the error of the memory figures, bytes.
    pub(crate) fn memory_slack(&self) -> u64 {
        match self {
            Self::Simulator(_) => 0,
            Self::Device(_) => super::device_oracle::MEMORY_SLACK,
        }
    }

    /// Registers a tenant that has started: the driver's own memory and the tenant's first memory are allocated.
    ///
    /// # Errors
    /// If the GPU does not answer.
    pub(crate) fn register(&mut self, tenant: &DemoTenant) -> anyhow::Result<()> {
        match self {
            Self::Simulator(_) => Ok(()),
            Self::Device(device) => device.register(tenant),
        }
    }

    /// Reads the window between two times of CLOCK_MONOTONIC, nanoseconds.
    ///
    /// # Errors
    /// If the GPU does not answer.
    pub(crate) fn read(
        &mut self,
        tenants: &[DemoTenant],
        from_ns: u64,
        to_ns: u64,
    ) -> anyhow::Result<OracleReading> {
        match self {
            Self::Simulator(gpu) => read_simulator(gpu, from_ns, to_ns),
            Self::Device(device) => device.read(tenants),
        }
    }
}

fn read_simulator(gpu: &SimulatedGpu, from_ns: u64, to_ns: u64) -> anyhow::Result<OracleReading> {
    let window = gpu.window(from_ns, to_ns)?;
    let ledger = gpu.ledger()?;
    let length = to_ns.saturating_sub(from_ns).max(1);
    let tenants = ledger.processes.iter().map(|row| {
        // Hold kernels are the hook's own and do not change the tenant's buffer.
        let holds = row.kernels.get(HOLD).copied().unwrap_or(0);
        let reading = TenantReading {
            gpu_ns: window.gpu_ns.get(&row.pid).copied().unwrap_or(0),
            memory: row.memory_bytes,
            memory_peak: row.memory_peak_bytes,
            submitted: row.kernels_submitted.saturating_sub(holds),
            completed: row.kernels_completed.saturating_sub(holds),
        };
        (row.pid, reading)
    });
    Ok(OracleReading { tenants: tenants.collect(), busy: window.busy_ns as f64 / length as f64 })
}
