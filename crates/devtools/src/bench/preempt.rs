//! `sluice-dev bench preempt`: latency of short requests beside another process's kernels of several lengths, at each level of
//! preemption. Each block measures alone, time-sliced and with Sluice in another order, so that a drift affects all of them alike.

mod arm_order;
mod arms;
mod generator;
mod level_processes;
mod preemption_level;
mod report;
mod row;

use std::cell::Cell;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use sluice_load::command_driven;
use sluice_test_bed::Interrupts;

use super::Gpu;
use level_processes::LevelProcesses;
use preemption_level::{NotAchieved, PreemptionLevel};
use report::{LeftOut, Report};

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

/// Measures, writes and prints the rows; fails if no row could be measured.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let limit = flags.limit.map(Duration::from_secs);
    let limit = TimeLimit { begin: Instant::now(), limit, interrupts, interrupted: Cell::new(false) };
    let mut report = Report::begin(flags)?;
    report.save(flags)?;
    writeln!(
        io::stdout(),
        "latency of requests, us: p50 / p99 alone, time-sliced, with Sluice; share of its kernels that best effort keeps"
    )?;
    for level in &flags.levels {
        let mut missing = report.missing(flags, *level);
        while !missing.is_empty() {
            let started = LevelProcesses::start(flags, *level, &limit).and_then(|processes| {
                report.set_gpu(&processes.lc.device)?;
                Ok(processes)
            });
            // A failure of the level or of the time limit concerns all lengths; any other failure concerns one length.
            let (concerns_all, why) = match started {
                Err(why) => (true, why),
                Ok(processes) => match measure_level(flags, processes, &mut missing, &limit, &mut report) {
                    Ok(()) => break,
                    Err(why) => (why.is::<TimeUp>() || why.is::<NotAchieved>(), why),
                },
            };
            let text = format!("{why:#}");
            for (be_kernel_us, hints) in missing.drain(..if concerns_all { missing.len() } else { 1 }) {
                for hint in hints {
                    let (level, why) = (*level, text.clone());
                    report.leave_out(LeftOut { be_kernel_us, level, hint, why })?;
                }
            }
            report.save(flags)?;
            if limit.interrupted.get() {
                return Err(why);
            }
        }
    }
    Ok(if report.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures the missing kernel lengths of a level. Takes each from the list once it is measured.
fn measure_level(
    flags: &Arguments,
    mut processes: LevelProcesses,
    missing: &mut Vec<(u32, Vec<bool>)>,
    limit: &TimeLimit<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    while let Some((kernel_us, hints)) = missing.first() {
        limit.has(arms::estimate(flags, hints.len()))?;
        report.add(arms::measure(flags, &mut processes, *kernel_us, hints, limit)?)?;
        report.save(flags)?;
        missing.remove(0);
    }
    Ok(())
}

/// The time limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time limit was reached first")]
struct TimeUp;

/// Time since the start, with an optional limit, and signals that end the run earlier.
struct TimeLimit<'a> {
    begin: Instant,
    limit: Option<Duration>,
    interrupts: &'a Interrupts,
    interrupted: Cell<bool>,
}

impl TimeLimit<'_> {
    /// Fails if the limit was reached or a signal is pending.
    fn check(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.check().inspect_err(|_| self.interrupted.set(true))
    }

    /// Sleeps for a moment, then the same as [`TimeLimit::check`].
    fn pause(&self) -> anyhow::Result<()> {
        self.has(Duration::ZERO)?;
        self.interrupts.pause().inspect_err(|_| self.interrupted.set(true))
    }

    /// Fails if less time than `needed` is left.
    fn has(&self, needed: Duration) -> Result<(), TimeUp> {
        let ends = self.begin.elapsed() + needed;
        if self.limit.is_some_and(|limit| ends >= limit) { Err(TimeUp) } else { Ok(()) }
    }
}

/// Serves requests on command.
pub(crate) fn run_lc(flags: &LcArguments) -> anyhow::Result<()> {
    let duration = Duration::from_micros(flags.kernel_us.into());
    let config = command_driven::lc::LcConfig { device: 0, kernels: flags.kernels, duration };
    command_driven::lc::run(&config, &mut BufReader::new(io::stdin()), &mut io::stdout())
        .context("preempt-lc")
}

/// Runs kernels on command.
pub(crate) fn run_be() -> anyhow::Result<()> {
    command_driven::be::run(0, BufReader::new(io::stdin()), &mut io::stdout()).context("preempt-be")
}
