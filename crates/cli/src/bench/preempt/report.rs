//! The result as JSON, and what of it is still missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sluice_load::samples::Samples;

use super::super::Gpu;
use super::level::Level;
use super::{Arguments, Hint, facts};

/// A row, or which one there is not and why.
pub(super) type Outcome = Result<Row, (bool, String)>;

/// Latencies, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    /// Half of the requests took no longer.
    pub(super) p50: f64,
    /// 99 of 100 took no longer.
    pub(super) p99: f64,
    /// 999 of 1000 took no longer.
    pub(super) p999: f64,
}

impl Quantiles {
    /// Of samples in nanoseconds.
    pub(super) fn of(samples: &Samples) -> Self {
        let all = samples.quantiles();
        Self { p50: all.p50, p99: all.p99, p999: all.p99_9 }
    }
}

/// How many requests are behind a row's latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requests {
    /// Behind `lc_alone_us`.
    pub(super) alone: usize,
    /// Behind `lc_stock_us`.
    pub(super) stock: usize,
    /// Behind `lc_sluice_us`.
    pub(super) sluice: usize,
}

/// Requests beside kernels of one length, at one level, with or without hints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Length of a best-effort kernel.
    pub(super) be_kernel_us: u32,
    /// The level that the manager was told to use.
    pub(super) level: Level,
    /// Requests were announced with `sluice_hint`.
    pub(super) hint: bool,
    /// Nobody beside, no hook.
    pub(super) lc_alone_us: Quantiles,
    /// Beside the kernels, no hook: the driver's own time slicing.
    pub(super) lc_stock_us: Quantiles,
    /// Beside the kernels, both under Sluice.
    pub(super) lc_sluice_us: Quantiles,
    /// Best effort's kernels per second with Sluice, over the same alone without the hook.
    pub(super) be_kept: f64,
    /// 99th percentile with Sluice, less the one alone.
    pub(super) added_p99_us: f64,
    /// By what part the 99th percentiles of alone's two halves differ.
    pub(super) aa_noise: f64,
    /// The two halves of alone: at the begin of each block and at its end.
    pub(super) lc_alone_aa_us: [Quantiles; 2],
    /// Requests behind the latencies.
    pub(super) requests: Requests,
    /// As `be_kept`, without the hook.
    pub(super) be_kept_stock: f64,
    /// Kernels per second alone, without the hook.
    pub(super) be_alone_per_s: f64,
    /// Kernels behind `be_kept`: proven by the buffer that each of them changes.
    pub(super) be_kernels_counted: u64,
    /// Processes by what held them, as the manager said while both ran.
    pub(super) achieved: BTreeMap<String, u64>,
    /// Results of `sluice_hint`, how often each.
    pub(super) hint_results: BTreeMap<String, u64>,
    /// Holds that the hook launched.
    pub(super) holds: u64,
    /// What was built.
    pub(super) commit: String,
    /// When the row was complete.
    pub(super) date: String,
}

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
    /// What was measured.
    pub(super) rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

impl Report {
    /// An empty one, or what `--resume` names.
    ///
    /// # Errors
    /// If that cannot be read, or is of another driver or of other requests.
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
            rows: Vec::new(),
            left_out: Vec::new(),
        };
        let Some(path) = &flags.resume else { return Ok(report) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let before: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is no result", path.display()))?;
        let asked = |report: &Self| {
            (report.driver.clone(), report.period_us, report.lc_kernels, report.lc_kernel_us, report.lead_us)
        };
        if asked(&before) != asked(&report) {
            bail!("{} was measured with another driver or other requests", path.display());
        }
        report.gpu = before.gpu;
        report.rows = before.rows;
        Ok(report)
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

impl Row {
    fn line(&self) -> String {
        let [alone, stock, sluice] = [self.lc_alone_us, self.lc_stock_us, self.lc_sluice_us]
            .map(|us| format!("{:.0} / {:.0}", us.p50, us.p99));
        format!(
            "{:8} {:6} us {:4}  alone {alone:13} stock {stock:13} sluice {sluice:13} added {:6.1}  kept {:.3} (stock {:.3})  {:?}",
            self.level.name(),
            self.be_kernel_us,
            hinted(self.hint),
            self.added_p99_us,
            self.be_kept,
            self.be_kept_stock,
            self.achieved
        )
    }
}

fn hinted(hint: bool) -> &'static str {
    if hint { "hint" } else { "" }
}
