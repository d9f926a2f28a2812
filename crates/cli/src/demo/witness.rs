//! Who says what really happened. It is the GPU itself, never the manager or the tenants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sluice_load::driver::Driver;
use sluice_sim::client;
use sluice_sim::module::HOLD;

use super::cast::Player;
use super::device::DeviceWitness;
use super::verdict::SIMULATED;

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

/// Whoever can see what the GPU did.
#[derive(Debug)]
pub(crate) enum Witness {
    /// The simulated GPU's own ledger.
    Simulator {
        /// Socket of the daemon.
        socket: PathBuf,
    },
    /// NVML, and the proof of work in the tenants' buffers.
    Device(Box<DeviceWitness>),
}

impl Witness {
    /// The one for a simulated GPU (`socket`) or for device 0 of the system's driver.
    ///
    /// # Errors
    /// If NVML does not answer.
    pub(crate) fn find(simulator_socket: Option<PathBuf>) -> anyhow::Result<Self> {
        match simulator_socket {
            Some(socket) => Ok(Self::Simulator { socket }),
            None => {
                let uuid = Driver::open().and_then(|driver| driver.device_uuid(0)).context("the real GPU")?;
                Ok(Self::Device(Box::new(DeviceWitness::open(&uuid)?)))
            }
        }
    }

    /// What the result calls the GPU: `sim`, or the device's name.
    pub(crate) fn gpu(&self) -> String {
        match self {
            Self::Simulator { .. } => SIMULATED.to_owned(),
            Self::Device(device) => device.name(),
        }
    }

    /// How many bytes the memory figures may be too high.
    pub(crate) fn memory_slack(&self) -> u64 {
        match self {
            Self::Simulator { .. } => 0,
            Self::Device(_) => super::device::MEMORY_SLACK,
        }
    }

    /// A tenant has started: its driver's own memory is there, and what it allocates at its start.
    ///
    /// # Errors
    /// If the witness does not answer.
    pub(crate) fn arrived(&mut self, player: &Player) -> anyhow::Result<()> {
        match self {
            Self::Simulator { .. } => Ok(()),
            Self::Device(device) => device.arrived(player),
        }
    }

    /// Looks at the window between two times of CLOCK_MONOTONIC, nanoseconds.
    ///
    /// # Errors
    /// If the witness does not answer.
    pub(crate) fn look(&mut self, players: &[Player], from_ns: u64, to_ns: u64) -> anyhow::Result<Sight> {
        match self {
            Self::Simulator { socket } => look_at_simulator(socket, from_ns, to_ns),
            Self::Device(device) => device.look(players),
        }
    }
}

fn look_at_simulator(socket: &Path, from_ns: u64, to_ns: u64) -> anyhow::Result<Sight> {
    let window = client::window(socket, from_ns, to_ns).context("the simulator's ledger does not answer")?;
    let ledger = client::ledger(socket).context("the simulator's ledger does not answer")?;
    let length = to_ns.saturating_sub(from_ns).max(1);
    let tenants = ledger.processes.iter().map(|row| {
        // The hook's own, launched so that a request finds the GPU ready; they leave nothing in the tenant's buffer.
        let holds = row.kernels.get(HOLD).copied().unwrap_or(0);
        let seen = Seen {
            gpu_ns: window.gpu_ns.get(&row.pid).copied().unwrap_or(0),
            memory: row.memory_bytes,
            memory_peak: row.memory_peak_bytes,
            submitted: row.kernels_submitted.saturating_sub(holds),
            completed: row.kernels_completed.saturating_sub(holds),
        };
        (row.pid, seen)
    });
    Ok(Sight { tenants: tenants.collect(), busy: window.busy_ns as f64 / length as f64 })
}
