//! The daemon of a simulated GPU, and its ledger.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use sluice_sim::client;
use sluice_sim::fault::ControlFault;
use sluice_sim::ledger::{Interval, Ledger, Window};

use crate::process::{Output, Process};
use crate::test_bed::{Pause, wait_until_ready};

/// A running simulator daemon. Its ledger is independent of the hook, the manager and the tenants.
#[derive(Debug, Clone)]
pub struct SimulatedGpu {
    socket: PathBuf,
}

impl SimulatedGpu {
    /// The daemon that serves at `socket`.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Everything that the GPU has counted since it was started.
    pub fn ledger(&self) -> anyhow::Result<Ledger> {
        client::ledger(&self.socket).context("the simulator's ledger does not answer")
    }

    /// Moves the clock of a GPU with `--clock stepped`; the next ledger shows everything up to the new time. Fails if the clock is
    /// real.
    pub fn advance(&self, ns: u64) -> anyhow::Result<()> {
        client::advance(&self.socket, ns).context("the simulator's clock was not advanced")
    }

    /// Sets or removes a fault of the driver's controls of channel groups.
    pub fn set_control_fault(&self, fault: Option<ControlFault>) -> anyhow::Result<()> {
        client::set_control_fault(&self.socket, fault).context("the simulator did not take the fault")
    }

    /// Use of the GPU between two times of its clock in nanoseconds. A real clock is CLOCK_MONOTONIC.
    pub fn window(&self, from_ns: u64, to_ns: u64) -> anyhow::Result<Window> {
        client::window(&self.socket, from_ns, to_ns).context("the simulator's ledger does not answer")
    }

    /// The processes that had the GPU between two times, in order of time.
    pub fn timeline(&self, from_ns: u64, to_ns: u64) -> anyhow::Result<Vec<Interval>> {
        client::timeline(&self.socket, from_ns, to_ns).context("the simulator's timeline does not answer")
    }
}

/// Starts the daemon of a simulated GPU at `socket` and waits until it serves, for `timeout` at most. `pause` is called between two
/// polls and may end the wait.
pub fn start_simulator(
    sluice: &Path,
    socket: &Path,
    flags: &[String],
    timeout: Duration,
    pause: Pause<'_>,
) -> anyhow::Result<Process> {
    let logs = socket.parent().context("the simulator's socket has no directory")?;
    let mut command = Process::command(sluice);
    command.arg("sim").arg("--socket").arg(socket).args(flags);
    let mut process = Process::start("simulator", command, logs, Output::Log)?;
    wait_until_ready(&mut process, timeout, pause, || client::ledger(socket).is_ok())?;
    Ok(process)
}
