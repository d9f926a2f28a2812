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
mod serve;
mod sim;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let code = arguments::Arguments::parse().run().unwrap_or_else(|error| {
        sluice_daemon::log::flush();
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    });
    sluice_daemon::log::flush();
    code
}

/// Sends a daemon's log to standard error.
fn start_log() -> anyhow::Result<()> {
    Ok(sluice_daemon::log::init(sluice_daemon::log::Format::from_environment()?)?)
}
