//! `sluice-dev bench`: what Sluice costs, and how it behaves when a process fails. Each benchmark starts a test bed of its own.

mod comm;
mod hook;
mod launch_worker;
mod percentiles;
mod preempt;
mod request_worker;
mod requests;
mod scenario_bed;
mod scenarios;
mod setup;
mod syscall_tracer;
mod token;
mod wire_client;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use setup::resource_file;
use sluice_test_bed::{Interrupts, TestBedOptions};

/// Flags of `sluice-dev bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Time that the hook adds to a kernel launch while a grant is valid, and to the calls of a latency-critical request
    Hook(Common),
    /// Time of a frame and of a round trip to the pod-manager
    Comm(Common),
    /// Time from one client's YIELD until the next client may launch
    Token(Common),
    /// Limits, idle tenants, killed tenants, killed managers and full memory, on the simulated GPU
    Scenarios {
        #[command(flatten)]
        common: Common,
        /// Run only these
        #[arg(value_enum)]
        only: Vec<scenarios::Scenario>,
    },
    /// Latency of requests beside kernels of several lengths, at each level of preemption: alone, time-sliced, with Sluice
    Preempt(preempt::Arguments),
    /// The process that serves `preempt`'s requests
    #[command(hide = true)]
    PreemptLc(preempt::LcArguments),
    /// The process that runs `preempt`'s kernels
    #[command(hide = true)]
    PreemptBe(preempt::BeArguments),
    /// The process in which `hook` measures
    #[command(hide = true)]
    HookWorker(launch_worker::Arguments),
    /// The process whose requests `hook` times
    #[command(hide = true)]
    RequestWorker(request_worker::Arguments),
    /// A client without the hook, to which `token` hands the token
    #[command(hide = true)]
    TokenPeer(token::PeerArguments),
    /// A process under the hook, to which `token` hands the token
    #[command(hide = true)]
    TokenLauncher(token::LauncherArguments),
}

/// Flags that all benchmarks have.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Which GPU
    #[arg(long, value_enum, default_value_t = Gpu::Sim)]
    gpu: Gpu,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gpu {
    /// Simulated
    Sim,
    /// This machine's
    Real,
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::Preempt(flags) => return preempt::run(flags, &Interrupts::block()?),
        Benchmark::PreemptLc(flags) => preempt::run_lc(flags)?,
        Benchmark::PreemptBe(flags) => preempt::run_be(flags)?,
        Benchmark::HookWorker(flags) => launch_worker::run(flags)?,
        Benchmark::RequestWorker(flags) => request_worker::run(flags)?,
        Benchmark::TokenPeer(flags) => token::run_peer(flags)?,
        Benchmark::TokenLauncher(flags) => token::run_launcher(flags)?,
        Benchmark::Hook(common) => common.publish(&hook::measure(common, &Interrupts::block()?)?)?,
        Benchmark::Comm(common) => common.publish(&comm::measure(common, &Interrupts::block()?)?)?,
        Benchmark::Token(common) => common.publish(&token::measure(common, &Interrupts::block()?)?)?,
        Benchmark::Scenarios { common, only } => {
            common.publish(&scenarios::measure(only, &Interrupts::block()?)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Common {
    /// Options of a test bed with this GPU and these best-effort clients: (name, request, limit, memory in bytes).
    fn options(&self, clients: &[(&str, f64, f64, u64)]) -> TestBedOptions {
        TestBedOptions {
            simulated: self.gpu == Gpu::Sim,
            resource_file: resource_file(clients),
            ..TestBedOptions::default()
        }
    }

    /// Writes the figures to the file that `--json` names, if any.
    fn publish(&self, figures: &impl Serialize) -> anyhow::Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| write(path, figures))
    }
}

fn write(path: &Path, figures: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
