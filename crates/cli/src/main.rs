//! The `sluice` program: the daemons, the simulator, load generators, the doctor and the demo as subcommands.
//!
//! [`arguments`] has one variant for each subcommand; a module of the same name, or the crate of a daemon, handles it. Programs and test beds that the demo and
//! the doctor start come from `sluice-test-bed`. Benchmarks are in `sluice-devtools`.
#![forbid(unsafe_code)]

mod arguments;
mod check;
mod demo;
mod doctor;
mod hold;
mod load;
mod pod_manager;
mod quantity;
mod sim;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    arguments::Arguments::parse().run().unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    })
}

/// Sends a daemon's logs to standard error, filtered by `RUST_LOG`.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are useful at a terminal only, not in `kubectl logs`.
    let ansi = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(io::stderr).init();
}
