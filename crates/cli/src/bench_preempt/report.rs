//! The result as JSON, and what of it is still missing.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::level::Level;
use super::row::{Outcome, Row, hinted};
use super::{Arguments, Hint, facts};
use crate::bench::Gpu;

/// A row that there is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftOut {
    be_kernel_us: u32,
    level: Level,
    hint: bool,
    /// Why.
    why: String,
}

impl LeftOut {
    /// This row, for this reason.
    pub(super) fn new(be_kernel_us: u32, level: Level, hint: bool, why: &str) -> Self {
        Self { be_kernel_us, level, hint, why: why.to_owned() }
    }
}

/// Everything measured so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Name of the GPU.
    pub(super) gpu: String,
    driver: String,
    commit: String,
    date: String,
    command: String,
    /// Requests of an arm asked for, and in how many blocks.
    requests: u32,
    blocks: u32,
    /// Mean time between requests; kernels of a request and their length; lead of hints, microseconds.
    period_us: u32,
    lc_kernels: u32,
    lc_kernel_us: u32,
    lead_us: u32,
    /// By what the rows' orders were chosen.
    #[serde(default)]
    seed: u64,
    /// What was measured.
    pub(super) rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

impl Report {
    /// An empty one, or what `--resume` names.
    ///
    /// # Errors
    /// If that cannot be read, or is of another driver, of other requests or of more or fewer of them.
    pub(super) fn begin(flags: &Arguments) -> anyhow::Result<Self> {
        let mut report = Self {
            gpu: String::new(),
            driver: facts::driver(flags.gpu == Gpu::Sim),
            commit: facts::commit(),
            date: facts::date(),
            command: facts::command(),
            requests: flags.requests,
            blocks: flags.blocks,
            period_us: flags.period_us,
            lc_kernels: flags.lc_kernels,
            lc_kernel_us: flags.lc_kernel_us,
            lead_us: flags.lead_us,
            seed: flags.seed,
            rows: Vec::new(),
            left_out: Vec::new(),
        };
        let Some(path) = &flags.resume else { return Ok(report) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let before: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is no result", path.display()))?;
        let asked = |report: &Self| {
            let Self { requests, blocks, period_us, lc_kernels, lc_kernel_us, lead_us, .. } = *report;
            (report.driver.clone(), [requests, blocks, period_us, lc_kernels, lc_kernel_us, lead_us])
        };
        if asked(&before) != asked(&report) {
            bail!("{} was measured with another driver or other requests", path.display());
        }
        report.gpu = before.gpu;
        report.rows = before.rows;
        Ok(report)
    }

    /// Notes on which GPU it is measured.
    ///
    /// # Errors
    /// If it was begun on another one.
    pub(super) fn is_of(&mut self, gpu: &str) -> anyhow::Result<()> {
        if !self.rows.is_empty() && self.gpu != gpu {
            bail!("the rows that are there were measured on {}, this is {gpu}", self.gpu);
        }
        gpu.clone_into(&mut self.gpu);
        Ok(())
    }

    /// Lengths of kernels with the hints for which there is no row of this level.
    pub(super) fn missing(&self, flags: &Arguments, level: Level) -> Vec<(u32, Vec<bool>)> {
        let there = |kernel: u32, hint: bool| {
            self.rows.iter().any(|row| (row.be_kernel_us, row.level, row.hint) == (kernel, level, hint))
        };
        let lengths = flags.be_kernel_us.iter().map(|kernel| {
            let hints = flags.hint.iter().map(|hint| *hint == Hint::Api);
            (*kernel, hints.filter(|hint| !there(*kernel, *hint)).collect::<Vec<_>>())
        });
        lengths.filter(|(_, hints)| !hints.is_empty()).collect()
    }

    /// Adds what was measured, and tells people.
    pub(super) fn add(&mut self, level: Level, kernel_us: u32, rows: Vec<Outcome>) -> anyhow::Result<()> {
        for row in rows {
            match row {
                Ok(row) => {
                    writeln!(io::stdout(), "  {}", row.line())?;
                    self.rows.push(row);
                }
                Err((hint, why)) => self.leave_out([LeftOut::new(kernel_us, level, hint, &why)])?,
            }
        }
        Ok(())
    }

    /// Notes that rows are left out, unless they are there.
    pub(super) fn leave_out(&mut self, all: impl IntoIterator<Item = LeftOut>) -> io::Result<()> {
        for out in all {
            let is_same = |row: &Row| {
                (row.be_kernel_us, row.level, row.hint) == (out.be_kernel_us, out.level, out.hint)
            };
            if !self.rows.iter().any(is_same) {
                writeln!(
                    io::stdout(),
                    "  {:8} {:6} us {:4} left out: {}",
                    out.level.name(),
                    out.be_kernel_us,
                    hinted(out.hint),
                    out.why
                )?;
                self.left_out.push(out);
            }
        }
        Ok(())
    }

    /// Writes the file that `--json` names: whole, or not at all.
    pub(super) fn save(&self, flags: &Arguments) -> anyhow::Result<()> {
        let Some(path) = &flags.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(self)? + "\n";
        let part = path.with_extension("part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::row::tests::row;
    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Arguments,
    }

    fn flags(more: &[&str]) -> Arguments {
        Cli::parse_from([&["preempt"], more].concat()).flags
    }

    #[test]
    fn what_was_measured_otherwise_is_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("preempt.json");
        let file = file.to_str().unwrap();
        let begun = flags(&["--json", file, "--requests", "500"]);
        Report::begin(&begun).unwrap().save(&begun).unwrap();
        let resumed = |more: &[&str]| Report::begin(&flags(&[&["--resume", file], more].concat()));
        assert!(resumed(&["--requests", "500"]).is_ok());
        for other in [
            &["--requests", "20"] as &[&str],
            &["--requests", "500", "--blocks", "2"],
            &["--requests", "500", "--lead-us", "100"],
        ] {
            let why = resumed(other).unwrap_err().to_string();
            assert!(why.contains(file) && why.contains("other requests"), "{why}");
        }
    }

    #[test]
    fn rows_of_two_gpus_do_not_share_a_report() {
        let mut report = Report::begin(&flags(&[])).unwrap();
        report.is_of("one").unwrap();
        report.is_of("two").unwrap();
        report.add(Level::Full, 10, vec![Ok(row(10, Level::Full))]).unwrap();
        report.is_of("two").unwrap();
        let why = report.is_of("one").unwrap_err().to_string();
        assert!(why.contains("one") && why.contains("two"), "{why}");
        assert_eq!(report.gpu, "two");
    }

    #[test]
    fn what_is_there_is_not_missing() {
        let mut report = Report::begin(&flags(&[])).unwrap();
        report.add(Level::Full, 10, vec![Ok(row(10, Level::Full))]).unwrap();
        let flags = flags(&["--be-kernel-us", "10", "100"]);
        let missing = |level| report.missing(&flags, level);
        assert_eq!(missing(Level::Full), [(10, vec![true]), (100, vec![false, true])]);
        assert_eq!(missing(Level::Host), [(10, vec![false, true]), (100, vec![false, true])]);
    }
}
