//! `sluice-dev bench flood`: what tenants get while others flood the pod-manager.
//!
//! A real pod-manager, whose standard error is a pipe that is never read, serves three busy tenants on a simulated GPU and one that asks
//! for its memory limit. Blocks with and without the flood alternate in one run. The flood is valid requests on 60 connections, garbage
//! frames, 500 idle connections and 150 half-open HTTP connections ([`source`]). The simulator's ledger is the witness.

mod bed;
mod figures;
mod measure;
mod source;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_test_bed::Interrupts;

use super::{Common, Gpu};
pub(crate) use source::Arguments as SourceArguments;
pub(crate) use source::run as run_source;

/// Flags of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Length of each block
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Pairs of a block without and a block with the flood
    #[arg(long, value_name = "PAIRS", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
}

/// Measures and prints the figures; fails if one of them misses its bar.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let figures = measure::measure(flags, interrupts)?;
    write!(io::stdout(), "{figures}")?;
    Common { gpu: Gpu::Sim, json: flags.json.clone() }.publish(&figures)?;
    Ok(if figures.is_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
