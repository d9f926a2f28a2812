//! `sluice bench preempt`: latency of short requests beside long and short kernels of somebody else, at each level of preemption.
//! Alone, time-sliced and with Sluice take turns in each block, in an order that changes, so that whatever drifts falls on all alike.

mod actor;
mod arms;
mod clock;
mod facts;
mod level;
mod mps;
mod order;
mod report;
mod row;
mod scene;
mod tally;

use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sluice_load::commanded::{self, be::StreamOf};

use crate::bench::Gpu;
use crate::signals::Interrupts;
use clock::{Clock, TimeUp};
use level::{Level, NotAchieved};
use report::{LeftOut, Report};
use scene::Scene;

/// Flags of the benchmark.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Which GPU
    #[arg(long, value_enum, default_value_t = Gpu::Sim)]
    gpu: Gpu,
    /// Write the figures to this file as JSON, again after each length of kernels
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Add what is missing to the figures in this file, which may be the same
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Requests of each kind, in all blocks together
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    requests: u32,
    /// How often alone, time-sliced and with Sluice take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,
    /// By what the order of the arms in a row's blocks is chosen
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lengths of the kernels beside which requests are made
    #[arg(long, num_args = 1.., value_name = "US", default_values_t = [10, 100, 1000, 10_000])]
    be_kernel_us: Vec<u32>,
    /// Levels
    #[arg(long, num_args = 1.., value_enum, default_values_t = Level::value_variants().to_vec())]
    levels: Vec<Level>,
    /// Whether requests are announced with `sluice_hint`
    #[arg(long, num_args = 1.., value_enum, default_values_t = [Hint::Off, Hint::Api])]
    hint: Vec<Hint>,
    /// How long before a request its hint comes
    #[arg(long, value_name = "US", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(commanded::lc::MAX_LEAD_US)))]
    lead_us: u32,
    /// Mean time between two requests
    #[arg(long, value_name = "US", default_value_t = 4000)]
    period_us: u32,
    /// Kernels of a request, one behind the other
    #[arg(long, default_value_t = 1)]
    lc_kernels: u32,
    /// Time of each of them on an H200
    #[arg(long, value_name = "US", default_value_t = 100)]
    lc_kernel_us: u32,
    /// End within this time, with what has been measured by then
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Further flags of the pod-managers
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    manager_flag: Vec<String>,
}

/// How requests are announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hint {
    /// Not at all
    Off,
    /// `sluice_hint`, --lead-us ahead
    Api,
}

/// Flags of the process that serves requests.
#[derive(Debug, Clone, Args)]
pub(crate) struct LcArguments {
    /// Kernels of a request
    #[arg(long)]
    kernels: u32,
    /// Time of each on an H200
    #[arg(long)]
    kernel_us: u32,
}

/// Flags of the process that runs kernels.
#[derive(Debug, Clone, Args)]
pub(crate) struct BeArguments {
    /// Launch them into the stream of those who name none
    #[arg(long)]
    default_stream: bool,
}

/// Measures, writes and tells people; fails if nothing could be measured.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let clock = Clock::start(flags.limit.map(Duration::from_secs), interrupts);
    let mut report = Report::begin(flags)?;
    report.save(flags)?;
    writeln!(
        io::stdout(),
        "latency of requests, us: p50 / p99 alone, time-sliced, with Sluice; share of its kernels that best effort keeps"
    )?;
    for level in &flags.levels {
        let mut missing = report.missing(flags, *level);
        while !missing.is_empty() {
            let Err(failed) = play(flags, *level, &missing, &clock, &mut report) else { break };
            let why = format!("{:#}", failed.why);
            missing.drain(..failed.measured);
            // What is true of a level or of the time left is true of all lengths; other failures are one length's.
            let all = failed.of_all || failed.why.is::<TimeUp>() || failed.why.is::<NotAchieved>();
            for (kernel, hints) in missing.drain(..if all { missing.len() } else { 1 }) {
                let out = |hint: &bool| LeftOut::new(kernel, *level, *hint, &why);
                report.leave_out(hints.iter().map(out))?;
            }
            report.save(flags)?;
            if clock.is_interrupted() {
                return Err(failed.why);
            }
        }
    }
    Ok(if report.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A level was not played to its end.
struct Failed {
    /// So many lengths of kernels were measured before.
    measured: usize,
    /// The level cannot be played at all.
    of_all: bool,
    why: anyhow::Error,
}

/// Plays a level: its own manager and processes; every length of kernels with its hints.
fn play(
    flags: &Arguments,
    level: Level,
    missing: &[(u32, Vec<bool>)],
    clock: &Clock<'_>,
    report: &mut Report,
) -> Result<(), Failed> {
    let mut scene =
        Scene::set(flags, level, clock).map_err(|why| Failed { measured: 0, of_all: true, why })?;
    report.is_of(&scene.device).map_err(|why| Failed { measured: 0, of_all: true, why })?;
    for (measured, (kernel_us, hints)) in missing.iter().enumerate() {
        let rows = clock.has(arms::estimate(flags, &scene, hints.len())).map_err(Into::into);
        let rows = rows.and_then(|()| arms::measure(flags, &mut scene, *kernel_us, hints, clock));
        rows.and_then(|rows| report.add(level, *kernel_us, rows).and_then(|()| report.save(flags)))
            .map_err(|why| Failed { measured, of_all: false, why })?;
    }
    Ok(())
}

/// Serves requests on command.
pub(crate) fn run_lc(flags: &LcArguments) -> anyhow::Result<()> {
    let duration = Duration::from_micros(flags.kernel_us.into());
    let config = commanded::lc::LcConfig { device: 0, kernels: flags.kernels, duration };
    commanded::lc::run(&config, &mut BufReader::new(io::stdin()), &mut io::stdout()).context("preempt-lc")
}

/// Runs kernels on command.
pub(crate) fn run_be(flags: &BeArguments) -> anyhow::Result<()> {
    let of = if flags.default_stream { StreamOf::Driver } else { StreamOf::Program };
    commanded::be::run(0, of, BufReader::new(io::stdin()), &mut io::stdout()).context("preempt-be")
}
