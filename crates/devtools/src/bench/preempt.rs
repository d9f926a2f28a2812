//! `sluice-dev bench preempt`: latency of short requests beside another process's kernels of several lengths, at each level of
//! preemption. Each block measures alone, time-sliced and with Sluice in another order, so that a drift affects all of them alike.

mod arm_order;
mod arms;
mod generator;
mod level_processes;
mod measurements;
mod mps_server;
mod preemption_level;
mod provenance;
mod report;
mod row;
mod time_limit;

use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sluice_load::command_driven::{self, be::LaunchStream};

use super::Gpu;
use level_processes::LevelProcesses;
use preemption_level::{NotAchieved, PreemptionLevel};
use report::{LeftOut, Report};
use sluice_test_bed::Interrupts;
use time_limit::{TimeLimit, TimeUp};

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
    /// Number of blocks; each measures alone, time-sliced and with Sluice
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,
    /// Seed of the order of the arms in a row's blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lengths of the best-effort kernels
    #[arg(long, num_args = 1.., value_name = "US", default_values_t = [10, 100, 1000, 10_000])]
    be_kernel_us: Vec<u32>,
    /// Levels of preemption
    #[arg(long, num_args = 1.., value_enum, default_values_t = PreemptionLevel::value_variants().to_vec())]
    levels: Vec<PreemptionLevel>,
    /// Whether requests are announced with `sluice_hint`
    #[arg(long, num_args = 1.., value_enum, default_values_t = [Hint::Off, Hint::Api])]
    hint: Vec<Hint>,
    /// Time between a hint and its request
    #[arg(long, value_name = "US", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=i64::from(command_driven::lc::MAX_LEAD_US)))]
    lead_us: u32,
    /// Mean time between two requests
    #[arg(long, value_name = "US", default_value_t = 4000)]
    period_us: u32,
    /// Kernels of a request, one after the other
    #[arg(long, default_value_t = 1)]
    lc_kernels: u32,
    /// Time of each of them on an H200
    #[arg(long, value_name = "US", default_value_t = 100)]
    lc_kernel_us: u32,
    /// End within this time, with the rows that have been measured
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
    /// Launch into the default stream
    #[arg(long)]
    default_stream: bool,
}

/// Measures, writes and prints the rows; fails if no row could be measured.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let limit = TimeLimit::start(flags.limit.map(Duration::from_secs), interrupts);
    let mut report = Report::begin(flags)?;
    report.save(flags)?;
    writeln!(
        io::stdout(),
        "latency of requests, us: p50 / p99 alone, time-sliced, with Sluice; share of its kernels that best effort keeps"
    )?;
    for level in &flags.levels {
        let mut missing = report.missing(flags, *level);
        while !missing.is_empty() {
            let Err(failed) = run_level(flags, *level, &missing, &limit, &mut report) else { break };
            let why = format!("{:#}", failed.why);
            missing.drain(..failed.measured);
            // A failure of the level or of the time limit concerns all lengths; any other failure concerns one length.
            let all = failed.whole_level || failed.why.is::<TimeUp>() || failed.why.is::<NotAchieved>();
            for (kernel, hints) in missing.drain(..if all { missing.len() } else { 1 }) {
                let left_out = |hint: &bool| LeftOut::new(kernel, *level, *hint, &why);
                report.leave_out(hints.iter().map(left_out))?;
            }
            report.save(flags)?;
            if limit.is_interrupted() {
                return Err(failed.why);
            }
        }
    }
    Ok(if report.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A level was not measured completely.
struct Failed {
    /// Number of kernel lengths that were measured before the failure.
    measured: usize,
    /// The level cannot be measured at all.
    whole_level: bool,
    why: anyhow::Error,
}

/// Measures a level with a manager and processes of its own, for every missing kernel length.
fn run_level(
    flags: &Arguments,
    level: PreemptionLevel,
    missing: &[(u32, Vec<bool>)],
    limit: &TimeLimit<'_>,
    report: &mut Report,
) -> Result<(), Failed> {
    let mut processes = LevelProcesses::start(flags, level, limit).map_err(|why| Failed {
        measured: 0,
        whole_level: true,
        why,
    })?;
    report.set_gpu(&processes.device).map_err(|why| Failed { measured: 0, whole_level: true, why })?;
    for (measured, (kernel_us, hints)) in missing.iter().enumerate() {
        let rows = limit.has(arms::estimate(flags, &processes, hints.len())).map_err(Into::into);
        let rows = rows.and_then(|()| arms::measure(flags, &mut processes, *kernel_us, hints, limit));
        rows.and_then(|rows| report.add(level, *kernel_us, rows).and_then(|()| report.save(flags)))
            .map_err(|why| Failed { measured, whole_level: false, why })?;
    }
    Ok(())
}

/// Serves requests on command.
pub(crate) fn run_lc(flags: &LcArguments) -> anyhow::Result<()> {
    let duration = Duration::from_micros(flags.kernel_us.into());
    let config = command_driven::lc::LcConfig { device: 0, kernels: flags.kernels, duration };
    command_driven::lc::run(&config, &mut BufReader::new(io::stdin()), &mut io::stdout())
        .context("preempt-lc")
}

/// Runs kernels on command.
pub(crate) fn run_be(flags: &BeArguments) -> anyhow::Result<()> {
    let of = if flags.default_stream { LaunchStream::LegacyDefault } else { LaunchStream::Own };
    command_driven::be::run(0, of, BufReader::new(io::stdin()), &mut io::stdout()).context("preempt-be")
}
