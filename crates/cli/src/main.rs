//! The `sluice` binary: daemons, simulator, load generators, demo and benchmarks behind one name.
#![forbid(unsafe_code)]

mod arguments;
mod artifacts;
mod bench;
mod commands;
mod demo;
mod doctor;
mod hold;
mod http;
mod metrics;
mod quantity;
mod signals;
mod stage;
mod supervise;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::Arguments::parse().run().unwrap_or_else(|why| {
        eprintln!("sluice: {why:#}");
        ExitCode::FAILURE
    })
}
