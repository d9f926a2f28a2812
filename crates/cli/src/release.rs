//! `sluice release`: releases programs that a pod-manager has left stopped on the GPU.

use std::io::{self, Write};

use anyhow::{anyhow, bail};
use clap::Args;
use sluice_load::checkpoint;
use sluice_load::driver::Driver;
use sluice_nvrm::discovery::{DiscoveredProcess, newest_client};

/// Flags of `sluice release`.
#[derive(Debug, Args)]
#[command(after_help = "Needs CAP_SYS_PTRACE (root in the host's pid namespace has it).")]
pub(crate) struct Arguments {
    /// A process, by its id; may be given several times
    #[arg(long = "pid", required = true, value_name = "PID")]
    pids: Vec<i32>,
    /// The control device is a simulator's
    #[arg(long)]
    simulated: bool,
}

/// Enables the channel groups of each process and takes the driver's lock from it. One of the two has to succeed.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let newest_client = if arguments.simulated {
        None
    } else {
        // Without it, a search finds only the first clients since boot.
        newest_client().inspect_err(|why| eprintln!("sluice: {why}")).ok()
    };
    let mut failed = Vec::new();
    for pid in &arguments.pids {
        let found = DiscoveredProcess::find(*pid, arguments.simulated, newest_client);
        let enabled = found.map_err(|why| anyhow!(why)).and_then(|found| Ok(found.enable()?));
        let unlocked = Driver::open().and_then(|driver| checkpoint::unlock(&driver, *pid));
        match (enabled, unlocked) {
            (Err(groups), Err(lock)) => failed.push(format!("process {pid}: {groups:#}; {lock}")),
            _ => writeln!(io::stdout(), "released process {pid}")?,
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
}
