//! The GPU's ledger: GPU time, kernels and memory per process, and the timeline.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::module::{COPY, HOLD};
use crate::params::{IDLE_POWER_MW, WORK_POWER_MW};

/// All counts of the GPU since its start, including those of ended processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The GPU as a whole.
    pub gpu: GpuLedger,
    /// One row per process that ever connected, in order of connection.
    pub processes: Vec<ProcessLedger>,
    /// Counters by label, for example of all processes of a container.
    #[serde(default)]
    pub labels: BTreeMap<String, LabelLedger>,
    /// One row per context that exists.
    #[serde(default)]
    pub groups: Vec<GroupLedger>,
}

impl Ledger {
    /// The row of the latest process with this label.
    pub fn by_label(&self, label: &str) -> Option<&ProcessLedger> {
        self.processes.iter().rev().find(|row| row.label == label)
    }

    /// The row of the latest process with this pid.
    pub fn by_pid(&self, pid: i32) -> Option<&ProcessLedger> {
        self.processes.iter().rev().find(|row| row.pid == pid)
    }
}

/// Counters of the whole GPU. Times are nanoseconds of the daemon's clock, which is CLOCK_MONOTONIC unless it is stepped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuLedger {
    /// The time up to which the timeline is computed.
    pub now_ns: u64,
    /// Time in which kernels of some process ran.
    pub busy_ns: u64,
    /// Time lost to switching between contexts.
    pub switch_ns: u64,
    /// Number of switches.
    pub switches: u64,
    /// Size of the device memory in bytes.
    pub memory_total: u64,
    /// Bytes in use by all processes, contexts included.
    pub memory_used: u64,
}

impl GpuLedger {
    /// Energy of the GPU since the clock's zero, millijoules.
    #[must_use]
    pub fn energy_mj(&self) -> u64 {
        energy_mj(IDLE_POWER_MW, self.now_ns) + energy_mj(WORK_POWER_MW, self.busy_ns + self.switch_ns)
    }
}

/// Energy of a power in milliwatts for this time.
fn energy_mj(power_mw: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(power_mw) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Counters of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLedger {
    /// Process id as the daemon sees it.
    pub pid: i32,
    /// Value of SLUICE_SIM_LABEL, or empty.
    pub label: String,
    /// Time in which at least one kernel of this process ran.
    pub gpu_ns: u64,
    /// Sum of the durations of its completed kernels; more than `gpu_ns` where kernels ran side by side.
    pub kernel_ns: u64,
    /// Time in which it had kernels that could have run and none of them ran: another process had the GPU, or the GPU switched.
    #[serde(default)]
    pub waited_ns: u64,
    /// Time that its copies took on the copy engines.
    pub copy_ns: u64,
    /// Submitted kernels.
    pub kernels_submitted: u64,
    /// Kernels that ran to their end.
    pub kernels_completed: u64,
    /// Device bytes allocated, contexts not included.
    pub memory_bytes: u64,
    /// Largest `memory_bytes`.
    pub memory_peak_bytes: u64,
    /// Device bytes that its contexts and their modules use.
    pub context_bytes: u64,
    /// Device bytes that NVML reports: contexts, modules, and whole blocks of 2 MiB.
    #[serde(default)]
    pub reported_bytes: u64,
    /// The time at which its first kernel began.
    pub first_kernel_ns: Option<u64>,
    /// The time at which its last kernel ended.
    pub last_kernel_ns: Option<u64>,
    /// Whether the process has ended.
    pub ended: bool,
    /// Completed kernels by name.
    pub kernels: BTreeMap<String, u64>,
}

impl ProcessLedger {
    /// Energy that its kernels caused beyond what the GPU draws without work, millijoules.
    #[must_use]
    pub fn energy_mj(&self) -> u64 {
        energy_mj(WORK_POWER_MW, self.gpu_ns)
    }

    /// Completed kernels that the hook launched, not the program: hold kernels and copy kernels. No result of the program depends on
    /// how many there are.
    #[must_use]
    pub fn hook_kernels(&self) -> u64 {
        [HOLD, COPY].iter().filter_map(|name| self.kernels.get(*name)).sum()
    }
}

/// Counters of all processes with one label, ended ones included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelLedger {
    /// Processes that ever connected.
    pub processes: u64,
    /// Those of them that have not ended.
    pub alive: u64,
    /// Time in which kernels of these processes ran.
    pub gpu_ns: u64,
    /// Sum of the durations of their completed kernels.
    pub kernel_ns: u64,
    /// Kernels that ran to their end.
    pub kernels_completed: u64,
    /// Device bytes that they have allocated together, contexts not included.
    pub memory_bytes: u64,
    /// Largest `memory_bytes`.
    pub memory_peak_bytes: u64,
}

/// The present state of a context, after all controls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLedger {
    /// Number of the context.
    pub group: u64,
    /// Its process.
    pub pid: i32,
    /// Its time slice.
    pub timeslice_ns: u64,
    /// Whether it may run.
    pub is_enabled: bool,
    /// How often its state was saved.
    pub saves: u32,
}

/// A period in which one process had the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin.
    pub start_ns: u64,
    /// End, after `start_ns`.
    pub end_ns: u64,
    /// The process's id.
    pub pid: i32,
    /// Time of the interval in which kernels ran: less than its length by gaps of at most [`crate::params::MERGE_GAP_NS`] each.
    pub busy_ns: u64,
}

/// Use of the GPU within a window of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Begin of the window.
    pub from_ns: u64,
    /// End of the window.
    pub to_ns: u64,
    /// Time in which some process ran.
    pub busy_ns: u64,
    /// Time per process id.
    pub gpu_ns: BTreeMap<i32, u64>,
}

impl Window {
    /// Part of the window, 0 to 1, in which this process had the GPU.
    pub fn share_of_time(&self, pid: i32) -> f64 {
        ratio(self.gpu_ns.get(&pid).copied().unwrap_or(0), self.to_ns.saturating_sub(self.from_ns))
    }

    /// Part of the used time, 0 to 1, that was this process's.
    pub fn share_of_busy(&self, pid: i32) -> f64 {
        ratio(self.gpu_ns.get(&pid).copied().unwrap_or(0), self.busy_ns)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
