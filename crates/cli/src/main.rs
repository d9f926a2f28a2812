//! The `sluice` program: the daemons, the simulator, load generators, the doctor and the demo as subcommands.
//!
//! [`arguments`] has one variant for each subcommand; a module of the same name, or the crate of a daemon, handles it. Programs and test beds that the demo and
//! the doctor start come from `sluice-test-bed`. `top`, `explain` and `nodes` are those of `sluice-kubectl`. Benchmarks are in `sluice-devtools`.
#![forbid(unsafe_code)]

mod arguments;
mod check;
mod demo;
mod doctor;
mod load;
mod lock_helper;
mod pod_manager;
mod policy;
mod quantity;
mod release;
mod serve;
mod sim;
mod suspend;
mod trace;

#[cfg(feature = "cluster")]
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let code = run().unwrap_or_else(|error| {
        sluice_daemon::log::flush();
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    });
    sluice_daemon::log::flush();
    code
}

/// Runs the command line. kubectl runs a program of the name `kubectl-sluice` for `kubectl sluice`.
fn run() -> anyhow::Result<ExitCode> {
    #[cfg(feature = "cluster")]
    if std::env::args_os().next().is_some_and(|program| Path::new(&program).ends_with(PLUGIN)) {
        sluice_kubectl::Plugin::parse().command.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments::Arguments::parse().run()
}

/// The name under which kubectl finds a plugin for `kubectl sluice`.
#[cfg(feature = "cluster")]
const PLUGIN: &str = "kubectl-sluice";

/// Sends a daemon's log to standard error.
fn start_log() -> anyhow::Result<()> {
    Ok(sluice_daemon::log::init(sluice_daemon::log::Format::from_environment()?)?)
}
