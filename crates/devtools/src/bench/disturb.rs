//! `sluice-dev bench disturb`: what clients get after disturbances, in real time with real processes. Each scenario has a simulated GPU,
//! a pod-manager and a process of each client under the hook. The simulator's ledger is the witness; the manager's exported figures
//! are compared with it in each scenario.

mod bed;
mod disturbances;
mod entitled;
mod exported;
pub(super) mod host;
mod judge;
mod measure;
pub(super) mod messages;
mod program;
mod report;
mod scenario;
mod table;
mod waits;
mod windows;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use sluice_test_bed::Interrupts;

pub(crate) use program::Arguments as ProcessArguments;
use report::{Report, Row};
use scenario::Scenario;
use waits::Waits;

/// Flags of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write all figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run the scenarios whose names contain this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the scenarios' names and end
    #[arg(long)]
    list: bool,
    /// How long each scenario is measured at least, from 2 s after its disturbance on. With less than 8 s, sluice_share still covers the
    /// disturbance at the end; a repetition after the 10 s of a window needs 13 s
    #[arg(long, value_name = "SECONDS", default_value_t = 13, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Scenarios that run at the same time, each with a GPU of its own
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}

/// Runs the scenarios and prints a line for each; fails if one of them does not show what it should.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let is_chosen = |scenario: &Scenario| {
        flags.only.is_empty() || flags.only.iter().any(|part| scenario.name.contains(part))
    };
    let chosen: Vec<Scenario> = table::all().into_iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        bail!("no scenario's name contains {}: see --list", flags.only.join(" or "));
    }
    if flags.list {
        chosen.iter().try_for_each(|scenario| writeln!(io::stdout(), "{}", scenario.name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let waits = Waits::new(interrupts);
    let report = Report::new(run_all(&chosen, flags, &waits)?);
    writeln!(io::stdout(), "{report}")?;
    flags.json.as_deref().map_or(Ok(()), |path| report.save(path))?;
    waits.check()?;
    Ok(if report.is_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the scenarios on several threads. Returns the rows in the order of the scenarios; without those that a signal prevented.
fn run_all(scenarios: &[Scenario], flags: &Arguments, waits: &Waits<'_>) -> anyhow::Result<Vec<Row>> {
    let next = Mutex::new(scenarios.iter().enumerate());
    let rows = Mutex::new(Vec::new());
    let work = || -> io::Result<()> {
        loop {
            let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, scenario)) = taken.filter(|_| !waits.is_interrupted()) else { return Ok(()) };
            let outcome = measure::run(scenario, Duration::from_secs(flags.seconds), waits);
            if !waits.is_interrupted() {
                let row = Row::new(scenario, outcome);
                writeln!(io::stdout(), "{row}")?;
                rows.lock().unwrap_or_else(PoisonError::into_inner).push((place, row));
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..flags.jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        anyhow::Ok(())
    })?;
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(place, _)| *place);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// The process of a client.
pub(crate) fn run_process(flags: &ProcessArguments) -> anyhow::Result<()> {
    program::run(flags)
}
