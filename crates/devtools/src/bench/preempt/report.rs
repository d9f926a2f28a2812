//! The result as JSON, and the rows that are still missing.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::super::Gpu;
use super::preemption_level::PreemptionLevel;
use super::row::{Outcome, Row, hinted};
use super::{Arguments, Hint, provenance};

/// A row that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftOut {
    be_kernel_us: u32,
    level: PreemptionLevel,
    hint: bool,
    /// Reason.
    why: String,
}

impl LeftOut {
    /// The row that was left out, and the reason.
    pub(super) fn new(be_kernel_us: u32, level: PreemptionLevel, hint: bool, why: &str) -> Self {
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
    /// Requested number of requests of an arm, and number of blocks.
    requests: u32,
    blocks: u32,
    /// Mean time between requests; kernels of a request and their length; lead of hints, microseconds.
    period_us: u32,
    lc_kernels: u32,
    lc_kernel_us: u32,
    lead_us: u32,
    /// Seed of the rows' orders.
    #[serde(default)]
    seed: u64,
    /// Measured rows.
    pub(super) rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

impl Report {
    /// An empty report, or the report in the file that `--resume` names.
    ///
    /// # Errors
    /// If the file cannot be read, or was measured with another driver or other requests.
    pub(super) fn begin(flags: &Arguments) -> anyhow::Result<Self> {
        let mut report = Self {
            gpu: String::new(),
            driver: provenance::driver(flags.gpu == Gpu::Sim),
            commit: provenance::commit(),
            date: provenance::date(),
            command: provenance::command(),
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
        let conditions = |report: &Self| {
            let Self { requests, blocks, period_us, lc_kernels, lc_kernel_us, lead_us, .. } = *report;
            (report.driver.clone(), [requests, blocks, period_us, lc_kernels, lc_kernel_us, lead_us])
        };
        if conditions(&before) != conditions(&report) {
            bail!("{} was measured with another driver or other requests", path.display());
        }
        report.gpu = before.gpu;
        report.rows = before.rows;
        Ok(report)
    }

    /// Sets the GPU on which it is measured.
    ///
    /// # Errors
    /// If its rows were measured on another GPU.
    pub(super) fn set_gpu(&mut self, gpu: &str) -> anyhow::Result<()> {
        if !self.rows.is_empty() && self.gpu != gpu {
            bail!("the rows in the report were measured on {}, this is {gpu}", self.gpu);
        }
        gpu.clone_into(&mut self.gpu);
        Ok(())
    }

    /// Kernel lengths, with the hint settings for which this level has no row.
    pub(super) fn missing(&self, flags: &Arguments, level: PreemptionLevel) -> Vec<(u32, Vec<bool>)> {
        let is_measured = |kernel: u32, hint: bool| {
            self.rows.iter().any(|row| (row.be_kernel_us, row.level, row.hint) == (kernel, level, hint))
        };
        let lengths = flags.be_kernel_us.iter().map(|kernel| {
            let hints = flags.hint.iter().map(|hint| *hint == Hint::Api);
            (*kernel, hints.filter(|hint| !is_measured(*kernel, *hint)).collect::<Vec<_>>())
        });
        lengths.filter(|(_, hints)| !hints.is_empty()).collect()
    }

    /// Adds rows and prints them.
    pub(super) fn add(
        &mut self,
        level: PreemptionLevel,
        kernel_us: u32,
        rows: Vec<Outcome>,
    ) -> anyhow::Result<()> {
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

    /// Records that rows are left out, unless they were measured.
    pub(super) fn leave_out(&mut self, all: impl IntoIterator<Item = LeftOut>) -> io::Result<()> {
        for left_out in all {
            let is_same = |row: &Row| {
                (row.be_kernel_us, row.level, row.hint)
                    == (left_out.be_kernel_us, left_out.level, left_out.hint)
            };
            if !self.rows.iter().any(is_same) {
                writeln!(
                    io::stdout(),
                    "  {:8} {:6} us {:4} left out: {}",
                    left_out.level.name(),
                    left_out.be_kernel_us,
                    hinted(left_out.hint),
                    left_out.why
                )?;
                self.left_out.push(left_out);
            }
        }
        Ok(())
    }

    /// Writes the file that `--json` names. A reader never sees half of it.
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
mod tests;
