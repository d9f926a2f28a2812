//! The `sluice-dev` program: benchmarks for developers of Sluice. It lies beside `sluice` in the target directory and starts it;
//! the image does not contain it.
//!
//! `cargo xtask build` builds it. `sluice-dev bench hook --gpu sim` then measures what the hook adds to a launch.
#![forbid(unsafe_code)]

mod bench;
mod escapes;
mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure and test Sluice.
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
    /// Try to get around Sluice in each known way, and report what is blocked, what is detected and what is open
    Escapes(escapes::Arguments),
    /// Make random driver calls in many processes and disturb every part of a node, then check what must hold, on the simulated GPU
    Soak(soak::Arguments),
    /// A tenant's process of `soak`
    #[command(hide = true)]
    SoakTenant(soak::TenantArguments),
}

fn main() -> ExitCode {
    let Arguments { parent, command } = Arguments::parse();
    sluice_test_bed::end_with_parent(parent).and_then(|()| run(&command)).unwrap_or_else(|error| {
        eprintln!("sluice-dev: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(benchmark) => bench::run(benchmark),
        Command::Escapes(flags) => escapes::run(flags, &sluice_test_bed::Interrupts::block()?),
        Command::Soak(flags) => soak::run(flags, &sluice_test_bed::Interrupts::block()?),
        Command::SoakTenant(flags) => soak::run_tenant(flags).map(|()| ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests;
