//! The agent's command-line flags about GPUs.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::context_reserve::ContextReserve;
use super::host_memory::HostMemory;
use super::nvml::{DriverPaths, Mig};
use super::watcher::Settings;
use super::xid::{self, Policy};

/// The value of one flag. The alias hides `Vec` from clap's derive, which would otherwise make each number a separate
/// occurrence of the flag.
type XidList = Vec<u64>;

/// Flags about GPUs; part of the agent's flags.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// Interval between two scans of every GPU, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = Self::default().gpu_look_every_ms,
        value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    gpu_look_every_ms: u64,
    /// Consecutive good scans after which an unhealthy GPU is healthy again
    #[arg(long, value_name = "SCANS", default_value_t = Self::default().gpu_good_looks)]
    gpu_good_looks: NonZeroU32,
    /// Further Xids that leave a GPU healthy, such as 63,92; Xids of applications always do
    #[arg(long, value_name = "XIDS", value_parser = xid::parse_list, default_value = "")]
    ignore_xids: XidList,
    /// Xids that make a GPU unhealthy even if they count as faults of applications, such as 31
    #[arg(long, value_name = "XIDS", value_parser = xid::parse_list, default_value = "")]
    critical_xids: XidList,
    /// Memory of each GPU that pods cannot request, for each device slot, such as 512Mi: contexts, modules and libraries of
    /// their processes take it; by default 512Mi, in total at most a tenth of the GPU's memory
    #[arg(long, value_name = "QUANTITY")]
    context_reserve: Option<ContextReserve>,
    /// Memory of the host for each GPU, such as 128Gi, to which memory of pods with the annotation sluice.dev/memory-overcommit leaves the
    /// GPU. It has to hold all memory of these pods; 0: no memory leaves a GPU
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    host_memory: HostMemory,
    /// NVML's library; by default libnvidia-ml.so.1 as the loader finds it
    #[arg(long, value_name = "FILE")]
    nvml: Option<PathBuf>,
    /// What becomes of GPUs in MIG mode: off leaves them and their instances to others, instances gives each instance as a GPU of its own
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mig: Mig,
}

impl Default for Flags {
    fn default() -> Self {
        let Settings { scan_every, good_scans, .. } = Settings::default();
        Self {
            gpu_look_every_ms: u64::try_from(scan_every.as_millis()).unwrap_or(u64::MAX),
            gpu_good_looks: good_scans,
            ignore_xids: Vec::new(),
            critical_xids: Vec::new(),
            context_reserve: None,
            host_memory: HostMemory::default(),
            nvml: None,
            mig: Mig::default(),
        }
    }
}

impl Flags {
    /// How GPUs are watched, with this many device slots each.
    #[must_use]
    pub fn settings(&self, slots_per_gpu: u32) -> Settings {
        Settings {
            slots_per_gpu,
            context_reserve: self.context_reserve.unwrap_or_default(),
            host_memory: self.host_memory,
            scan_every: Duration::from_millis(self.gpu_look_every_ms),
            good_scans: self.gpu_good_looks,
            policy: Policy::new(self.ignore_xids.clone(), self.critical_xids.clone()),
            ..Settings::default()
        }
    }

    /// Where the driver's library is searched.
    #[must_use]
    pub fn paths(&self) -> DriverPaths {
        DriverPaths { library: self.nvml.clone(), ..DriverPaths::default() }
    }
}

#[cfg(test)]
mod tests;
