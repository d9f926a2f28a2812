//! `sluice bench`: what Sluice costs.

use std::process::ExitCode;

use clap::Args;

/// Flags of `sluice bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Runs the benchmark.
pub(crate) fn run(_arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not connected")
}
