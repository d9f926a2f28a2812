//! The result as JSON, where it comes from, and the rows that are still missing.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, bail};
use nvml_wrapper::Nvml;
use serde::{Deserialize, Serialize};

use super::super::Gpu;
use super::super::provenance::{commit, date};
use super::preemption_level::PreemptionLevel;
use super::row::{Row, hinted};
use super::{Arguments, Hint};

/// A row that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftOut {
    pub(super) be_kernel_us: u32,
    pub(super) level: PreemptionLevel,
    pub(super) hint: bool,
    pub(super) why: String,
}

/// Everything measured so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
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
    pub(super) rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

impl Report {
    /// An empty report, or the report in the file that `--resume` names. Fails if that was measured with another driver or other
    /// requests.
    pub(super) fn begin(flags: &Arguments) -> anyhow::Result<Self> {
        let mut report = Self {
            gpu: String::new(),
            driver: driver(flags.gpu == Gpu::Sim),
            commit: commit(),
            date: date(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
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

    /// Sets the GPU on which it is measured. Fails if its rows were measured on another GPU.
    pub(super) fn set_gpu(&mut self, gpu: &str) -> anyhow::Result<()> {
        if !self.rows.is_empty() && self.gpu != gpu {
            bail!("the rows in the report were measured on {}, this is {gpu}", self.gpu);
        }
        gpu.clone_into(&mut self.gpu);
        Ok(())
    }

    fn is_measured(&self, kernel_us: u32, level: PreemptionLevel, hint: bool) -> bool {
        self.rows.iter().any(|row| (row.be_kernel_us, row.level, row.hint) == (kernel_us, level, hint))
    }

    /// Kernel lengths, with the hint settings for which this level has no row.
    pub(super) fn missing(&self, flags: &Arguments, level: PreemptionLevel) -> Vec<(u32, Vec<bool>)> {
        let lengths = flags.be_kernel_us.iter().map(|kernel| {
            let hints = flags.hint.iter().map(|hint| *hint == Hint::Api);
            (*kernel, hints.filter(|hint| !self.is_measured(*kernel, level, *hint)).collect::<Vec<_>>())
        });
        lengths.filter(|(_, hints)| !hints.is_empty()).collect()
    }

    /// Adds rows, or records that they are left out, and prints them.
    pub(super) fn add(&mut self, rows: Vec<Result<Row, LeftOut>>) -> io::Result<()> {
        for row in rows {
            match row {
                Ok(row) => {
                    writeln!(io::stdout(), "  {}", row.line())?;
                    self.rows.push(row);
                }
                Err(left_out) => self.leave_out(left_out)?,
            }
        }
        Ok(())
    }

    /// Records that a row is left out, unless it was measured.
    pub(super) fn leave_out(&mut self, left_out: LeftOut) -> io::Result<()> {
        let LeftOut { be_kernel_us, level, hint, why } = &left_out;
        if !self.is_measured(*be_kernel_us, *level, *hint) {
            let (level, hint) = (level.name(), hinted(*hint));
            writeln!(io::stdout(), "  {level:8} {be_kernel_us:6} us {hint:4} left out: {why}")?;
            self.left_out.push(left_out);
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

/// Version of the driver.
fn driver(simulated: bool) -> String {
    if simulated {
        return "simulated".to_owned();
    }
    let version = Nvml::init().and_then(|nvml| nvml.sys_driver_version());
    version.unwrap_or_else(|why| format!("unknown: {why}"))
}

#[cfg(test)]
mod tests;
