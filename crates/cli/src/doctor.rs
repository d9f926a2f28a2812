//! `sluice doctor`: examines this machine and its driver. Each driver control is tried on programs of the doctor and judged by the
//! kernels that they complete, never by the driver's return code.

mod busy_program;
pub(crate) mod child;
mod connection;
mod container;
mod discovery;
mod enforcement_level;
mod examine;
mod finding;
mod groups;
mod machine;
mod manager;
mod mps;
mod next_steps;
mod program_checks;
pub(crate) mod self_test;
mod trials;
mod workspace;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

/// Flags of `sluice doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 all is well, 1 degraded (Sluice works, with less than it could), 2 broken.
Uses GPU 0 for less than 20 seconds; other programs can use it meanwhile. Restores everything that it changes."
)]
pub(crate) struct Arguments {
    /// The GPU of this machine, or a simulated GPU: the one at SLUICE_SIM_SOCKET, or one that the doctor starts
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The hook that is tested [default: libsluice.so beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gpu {
    /// A simulated GPU
    Sim,
    /// The machine's GPU
    Real,
}

/// Examines the machine and prints the report.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let report = examine::examine(arguments.gpu == Gpu::Sim, &library(arguments.library.as_ref())?)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(report.exit_code())
}

/// The library at `named`, or the library beside this program.
fn library(named: Option<&PathBuf>) -> io::Result<PathBuf> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(std::env::current_exe()?.with_file_name("libsluice.so")),
    }
}
