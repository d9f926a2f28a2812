//! `sluice doctor`: what this machine and its driver can do. Every control is tried on programs of the doctor's own and
//! judged by what they get done, never by what the driver says of it.

mod busy;
pub(crate) mod child;
mod connection;
mod container;
mod examine;
mod finding;
mod groups;
mod helper;
mod level;
mod machine;
mod manager;
mod mps;
mod next;
mod outside;
mod place;
pub(crate) mod selftest;
mod trials;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

/// Flags of `sluice doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 all is well, 1 degraded (Sluice works, with less than it could), 2 broken.
Takes less than 20 seconds of GPU 0, which other programs share meanwhile. Leaves everything as it was."
)]
pub(crate) struct Arguments {
    /// The GPU of this machine, or a simulated one: that of SLUICE_SIM_SOCKET, else one of the doctor's own
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The library that programs are to be put under [default: libsluice.so beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gpu {
    /// A simulated one
    Sim,
    /// The machine's
    Real,
}

/// Examines, and says what it found.
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

/// The library that was named, or the one beside this program.
fn library(named: Option<&PathBuf>) -> io::Result<PathBuf> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(std::env::current_exe()?.with_file_name("libsluice.so")),
    }
}
