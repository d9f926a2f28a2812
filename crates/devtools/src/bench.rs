//! `sluice-dev bench`: what Sluice costs, and how it behaves when a process fails. Each benchmark starts a test bed of its own.

mod comm;
mod disturb;
mod flood;
mod hand_off;
mod hook;
mod inspection;
mod launch_worker;
mod preempt;
mod provenance;
mod request_worker;
mod requests;
mod scenarios;
mod syscall_tracer;
mod token;
mod wire_client;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_load::samples::Samples;
use sluice_test_bed::{Artifacts, Interrupts, Process, TestBed, TestBedOptions, Worker};

/// How long a worker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The benchmarks, and the processes that they start.
#[derive(Debug, Subcommand)]
pub(crate) enum Benchmark {
    /// Time that the hook adds to a kernel launch while a grant is valid, and to the calls of a latency-critical request
    Hook(Common),
    /// Time of a frame and of a round trip to the pod-manager
    Comm(Common),
    /// Time from one client's YIELD until the next client may launch; with `--clients` what many clients cost
    Token {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        crowd: token::crowd::CrowdArguments,
    },
    /// Time from the end of one client's grant until the next client's launch passes, between two processes under the hook
    HandOff(hand_off::Arguments),
    /// A process of `hand-off`
    #[command(hide = true)]
    HandOffProgram(hand_off::program::ProgramArguments),
    /// Limits, idle tenants, killed tenants, killed managers and full memory, on the simulated GPU
    Scenarios {
        #[command(flatten)]
        common: Common,
        /// Run only these
        #[arg(value_enum)]
        only: Vec<scenarios::Scenario>,
    },
    /// Shares, limits and liveness after disturbances of the pod-manager, of clients and of the driver, on simulated GPUs
    Disturb(disturb::Arguments),
    /// The process of a client of `disturb`
    #[command(hide = true)]
    DisturbProcess(disturb::ProcessArguments),
    /// Shares, and answers about memory, while other clients flood the pod-manager; fails if a bar is missed
    Flood(flood::Arguments),
    /// A process that floods the pod-manager
    #[command(hide = true)]
    FloodSource(flood::SourceArguments),
    /// Latency of requests beside kernels of several lengths, at each level of preemption: alone, time-sliced, with Sluice
    Preempt(preempt::Arguments),
    /// The process that serves `preempt`'s requests
    #[command(hide = true)]
    PreemptLc(preempt::LcArguments),
    /// The process that runs `preempt`'s kernels
    #[command(hide = true)]
    PreemptBe,
    /// Processor time of a pod-manager with many attached processes, with and without their inspection
    Inspection(inspection::Arguments),
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
pub(crate) fn run(benchmark: &Benchmark) -> anyhow::Result<ExitCode> {
    match benchmark {
        Benchmark::Preempt(flags) => return preempt::run(flags, &Interrupts::block()?),
        Benchmark::Disturb(flags) => return disturb::run(flags, &Interrupts::block()?),
        Benchmark::Flood(flags) => return flood::run(flags, &Interrupts::block()?),
        Benchmark::FloodSource(flags) => flood::run_source(flags)?,
        Benchmark::DisturbProcess(flags) => disturb::run_process(flags)?,
        Benchmark::PreemptLc(flags) => preempt::run_lc(flags)?,
        Benchmark::PreemptBe => preempt::run_be()?,
        Benchmark::HookWorker(flags) => launch_worker::run(flags)?,
        Benchmark::RequestWorker(flags) => request_worker::run(flags)?,
        Benchmark::Inspection(flags) => inspection::measure(flags, &Interrupts::block()?)?,
        Benchmark::HandOff(flags) => hand_off::measure(flags, &Interrupts::block()?)?,
        Benchmark::HandOffProgram(flags) => hand_off::program::run(flags)?,
        Benchmark::TokenPeer(flags) => token::run_peer(flags)?,
        Benchmark::TokenLauncher(flags) => token::run_launcher(flags)?,
        Benchmark::Hook(common) => common.publish(&hook::measure(common, &Interrupts::block()?)?)?,
        Benchmark::Comm(common) => common.publish(&comm::measure(common, &Interrupts::block()?)?)?,
        Benchmark::Token { common, crowd } => {
            let interrupts = Interrupts::block()?;
            match crowd.clients() {
                Some(clients) => {
                    common.publish(&token::crowd::measure(common, crowd, clients, &interrupts)?)?
                }
                None => common.publish(&token::measure(common, &interrupts)?)?,
            }
        }
        Benchmark::Scenarios { common, only } => {
            common.publish(&scenarios::measure(only, &Interrupts::block()?)?)?
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
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(figures)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A resource file of best-effort clients: (name, request, limit, memory in bytes).
fn resource_file(clients: &[(&str, f64, f64, u64)]) -> String {
    let lines = clients.iter().map(|(name, request, limit, memory)| {
        format!("  - {{ name: {name}, request: {request}, limit: {limit}, memory: {memory} }}\n")
    });
    format!("clients:\n{}", lines.collect::<String>())
}

/// Starts a test bed with the `sluice` that lies beside this program. `pause` is called between two polls and may end the wait.
fn start_bed(options: TestBedOptions, pause: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<TestBed> {
    let sluice = this_program()?.with_file_name("sluice");
    if !sluice.is_file() {
        bail!("{} is missing: build it with `cargo xtask build`", sluice.display());
    }
    TestBed::start(Artifacts::beside(&sluice, options.simulated)?, options, pause)
}

/// `sluice-dev bench SUBCOMMAND` as a child of this process.
fn worker_command(subcommand: &str) -> anyhow::Result<Command> {
    let mut command = Process::command(&this_program()?);
    command.args(["bench", subcommand]);
    Ok(command)
}

fn this_program() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find this program's path")
}

/// The next line of a worker.
fn next_line(worker: &mut Worker, interrupts: &Interrupts) -> anyhow::Result<String> {
    worker.next_line(Instant::now() + ANSWER_TIMEOUT, || interrupts.check())
}

/// The next line of a worker, read as JSON.
fn answer<T: DeserializeOwned>(worker: &mut Worker, interrupts: &Interrupts) -> anyhow::Result<T> {
    worker.answer(Instant::now() + ANSWER_TIMEOUT, || interrupts.check())
}

/// Median and 99th percentile, in the unit that the field's name gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Percentiles {
    /// Percentiles of samples of which `per_unit` make one unit of the result.
    fn of(samples: &Samples, per_unit: f64) -> Self {
        Self { p50: samples.quantile(0.5) as f64 / per_unit, p99: samples.quantile(0.99) as f64 / per_unit }
    }
}

/// The median; 0 if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => f64::midpoint(*upper, values.get(middle - 1).copied().unwrap_or(*upper)),
    }
}

#[cfg(test)]
mod tests;
