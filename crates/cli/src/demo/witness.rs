//! Who says what really happened. It is the GPU itself, never the manager or the tenants.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use sluice_sim::client;

/// What was seen of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seen {
    /// GPU time within the window, nanoseconds.
    pub(crate) gpu_ns: u64,
    /// Device memory held, bytes, without the driver's own.
    pub(crate) memory: u64,
    /// The most it has held.
    pub(crate) memory_peak: u64,
    /// Kernels given to the GPU since the process began.
    pub(crate) submitted: u64,
    /// Kernels that ran to their end.
    pub(crate) completed: u64,
}

/// What was seen of all tenants in a window of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sight {
    /// By process id.
    pub(crate) tenants: BTreeMap<i32, Seen>,
    /// Part of the window in which the GPU worked for somebody, 0..=1.
    pub(crate) busy: f64,
}

impl Sight {
    /// What was seen of a process; nothing if it never used the GPU.
    pub(crate) fn of(&self, pid: i32) -> Seen {
        self.tenants.get(&pid).copied().unwrap_or_default()
    }
}

/// The simulated GPU's own ledger.
#[derive(Debug, Clone)]
pub(crate) struct SimulatorWitness {
    /// Socket of the daemon.
    pub(crate) socket: PathBuf,
}

impl SimulatorWitness {
    /// Looks at the window between two times of CLOCK_MONOTONIC, nanoseconds.
    ///
    /// # Errors
    /// If the simulator does not answer.
    pub(crate) fn look(&self, from_ns: u64, to_ns: u64) -> anyhow::Result<Sight> {
        let window =
            client::window(&self.socket, from_ns, to_ns).context("the simulator's ledger does not answer")?;
        let ledger = client::ledger(&self.socket).context("the simulator's ledger does not answer")?;
        let length = to_ns.saturating_sub(from_ns).max(1);
        let tenants = ledger.processes.iter().map(|row| {
            let seen = Seen {
                gpu_ns: window.gpu_ns.get(&row.pid).copied().unwrap_or(0),
                memory: row.memory_bytes,
                memory_peak: row.memory_peak_bytes,
                submitted: row.kernels_submitted,
                completed: row.kernels_completed,
            };
            (row.pid, seen)
        });
        Ok(Sight { tenants: tenants.collect(), busy: window.busy_ns as f64 / length as f64 })
    }
}
