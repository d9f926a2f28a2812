//! The `sluice-dev` program: benchmarks for developers of Sluice. It lies beside `sluice` in the target directory and starts it;
//! the image does not contain it.
//!
//! `cargo xtask build` builds it. `sluice-dev bench hook --gpu sim` then measures what the hook adds to a launch.
#![forbid(unsafe_code)]

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure Sluice.
#[derive(Debug, Parser)]
#[command(name = "sluice-dev", version)]
struct Arguments {
    /// End with the process of this id, which started this one
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<i32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what Sluice costs
    #[command(subcommand)]
    Bench(bench::Benchmark),
}

fn main() -> ExitCode {
    let Arguments { parent, command: Command::Bench(benchmark) } = Arguments::parse();
    sluice_test_bed::end_with_parent(parent).and_then(|()| bench::run(&benchmark)).unwrap_or_else(|error| {
        eprintln!("sluice-dev: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests;
