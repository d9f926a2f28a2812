//! A row of the result: requests beside kernels of one length, at one level.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_load::samples::Samples;

use super::level::Level;

/// A row, or which one there is not and why.
pub(super) type Outcome = Result<Row, (bool, String)>;

/// Latencies, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
    /// The two halves of alone, arms of their own in each block.
    pub(super) lc_alone_aa_us: [Quantiles; 2],
    /// Requests behind the latencies.
    pub(super) requests: Requests,
    /// As `be_kept`, without the hook.
    pub(super) be_kept_stock: f64,
    /// Beside the kernels under the MPS server alone, without the hook; at level mps-gate only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lc_mps_us: Option<Quantiles>,
    /// As `be_kept`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) be_kept_mps: Option<f64>,
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
    /// The arms of each block in their order.
    #[serde(default)]
    pub(super) order: Vec<String>,
    /// What was built.
    pub(super) commit: String,
    /// When the row was complete.
    pub(super) date: String,
}

impl Row {
    /// For people.
    pub(super) fn line(&self) -> String {
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

/// How a line says that there were hints.
pub(super) fn hinted(hint: bool) -> &'static str {
    if hint { "hint" } else { "" }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tally::{Gathered, Tally};
    use super::*;

    /// A row of nothing, without hints.
    pub(in super::super) fn row(be_kernel_us: u32, level: Level) -> Row {
        Gathered::default().row(be_kernel_us, level).with(false, &Tally::default(), &Tally::default())
    }
}
