//! `sluice-dev escapes`: programs that try to get around Sluice, each beside an honest tenant on a simulated GPU with a pod-manager as the
//! node agent runs it. The simulator's ledger tells what each program gained, the manager's metrics when it was detected.
//!
//! docs/security.md has the table; a test compares it with [`attempts::ALL`].

mod attempts;
mod bed;
mod outcome;
mod programs;
mod readings;
mod trial;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use sluice_test_bed::Interrupts;

pub(crate) use bed::uuid_of_first_gpu;
use outcome::{Row, Verdict};
use programs::Programs;

/// Flags of the suite.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The GPU: `sim`, or `real` for the attempts that apply to the first GPU of this machine
    #[arg(long, value_name = "GPU", default_value = "sim", value_parser = ["sim", "real"])]
    gpu: String,
    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run only the attempts whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The repository, which has the C programs
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    repository: PathBuf,
    /// Copy the logs of an attempt with a worse result than expected to this folder
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Flags of the pod-manager in place of --adopt=auto, separated by blanks
    #[arg(long, value_name = "FLAGS", default_value = "--adopt=auto", allow_hyphen_values = true)]
    manager: String,
}

/// Runs the suite; fails with status 1 if an attempt has a worse result than expected.
pub(crate) fn run(flags: &Arguments, interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    let programs = Programs::beside_this_program(&flags.repository, flags.gpu == "sim")?;
    let chosen: Vec<_> = attempts::ALL
        .iter()
        .filter(|attempt| programs.are_simulated() || attempt.on_real)
        .filter(|attempt| flags.only.as_deref().is_none_or(|text| attempt.name.contains(text)))
        .collect();
    if chosen.is_empty() {
        bail!("no attempt has {:?} in its name", flags.only.as_deref().unwrap_or_default());
    }
    let mut rows: Vec<Row> = Vec::new();
    for attempt in chosen {
        let row = trial::run(attempt, &programs, flags, interrupts)
            .with_context(|| format!("the attempt {:?}", attempt.name))?;
        match row {
            Some(row) => {
                writeln!(io::stdout(), "{row}")?;
                rows.push(row);
            }
            None => writeln!(io::stdout(), "{:42} not possible with this driver", attempt.name)?,
        }
    }
    if let Some(path) = &flags.json {
        let text = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?.join(",\n ");
        fs::write(path, format!("[{text}]\n")).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let count = |verdict| rows.iter().filter(|row| row.result == verdict).count();
    let [blocked, detected, open] = [Verdict::Blocked, Verdict::Detected, Verdict::Open].map(count);
    let worse: Vec<&str> = rows.iter().filter(|row| row.is_worse()).map(|row| row.name).collect();
    writeln!(io::stdout(), "{blocked} blocked, {detected} detected, {open} open")?;
    let repeated: Vec<&str> = rows.iter().filter(|row| row.attempts > 1).map(|row| row.name).collect();
    if !repeated.is_empty() {
        writeln!(io::stdout(), "made more than once: {}", repeated.join(", "))?;
    }
    if worse.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(io::stdout(), "worse than expected: {}", worse.join(", "))?;
    Ok(ExitCode::FAILURE)
}
