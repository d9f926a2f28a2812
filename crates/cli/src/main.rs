//! The `sluice` program: the daemons, the simulator, load generators, the doctor and the demo as subcommands.
//!
//! [`arguments`] has one variant for each subcommand; a module of the same name, or the crate of a daemon, handles it. Programs and test beds that the demo and
//! the doctor start come from `sluice-test-bed`. Benchmarks are in `sluice-devtools`.
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod demo;
mod doctor;
mod hold;
mod quantity;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::Arguments::parse().run().unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    })
}
