//! A row of the result: requests beside kernels of one length, at one level.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_load::samples::Samples;

use super::preemption_level::PreemptionLevel;

/// A row, or the hint setting of a row that was not measured, with the reason.
pub(super) type Outcome = Result<Row, (bool, String)>;

/// Latencies, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    /// Median.
    pub(super) p50: f64,
    /// 99th percentile.
    pub(super) p99: f64,
    /// 99.9th percentile.
    pub(super) p999: f64,
}

impl Quantiles {
    /// Quantiles of samples in nanoseconds.
    pub(super) fn of(samples: &Samples) -> Self {
        let all = samples.quantiles();
        Self { p50: all.p50, p99: all.p99, p999: all.p99_9 }
    }
}

/// Number of requests from which a row's latencies were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requests {
    /// For `lc_alone_us`.
    pub(super) alone: usize,
    /// For `lc_stock_us`.
    pub(super) stock: usize,
    /// For `lc_sluice_us`.
    pub(super) sluice: usize,
}

/// Requests beside kernels of one length, at one level, with or without hints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Length of a best-effort kernel.
    pub(super) be_kernel_us: u32,
    /// The level that the manager was configured for.
    pub(super) level: PreemptionLevel,
    /// Requests were announced with `sluice_hint`.
    pub(super) hint: bool,
    /// Without other processes and without the hook.
    pub(super) lc_alone_us: Quantiles,
    /// Beside the kernels without the hook: the driver's time slicing.
    pub(super) lc_stock_us: Quantiles,
    /// Beside the kernels, both under Sluice.
    pub(super) lc_sluice_us: Quantiles,
    /// Best-effort kernels per second with Sluice, divided by those alone without the hook.
    pub(super) be_kept: f64,
    /// 99th percentile with Sluice minus 99th percentile alone.
    pub(super) added_p99_us: f64,
    /// Relative difference of the 99th percentiles of the two halves measured alone.
    pub(super) aa_noise: f64,
    /// The two halves measured alone; each is an arm of every block.
    pub(super) lc_alone_aa_us: [Quantiles; 2],
    /// Numbers of requests.
    pub(super) requests: Requests,
    /// The same as `be_kept` without the hook.
    pub(super) be_kept_stock: f64,
    /// Beside the kernels under the MPS server alone, without the hook; at level mps-gate only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lc_mps_us: Option<Quantiles>,
    /// The same as `be_kept` for `lc_mps_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) be_kept_mps: Option<f64>,
    /// Kernels per second alone, without the hook.
    pub(super) be_alone_per_s: f64,
    /// Number of kernels in `be_kept`, proven by the buffer that each of them changes.
    pub(super) be_kernels_counted: u64,
    /// Processes by the level that enforced their share, as the manager reported while both ran.
    pub(super) achieved: BTreeMap<String, u64>,
    /// Count of each result of `sluice_hint`.
    pub(super) hint_results: BTreeMap<String, u64>,
    /// Hold kernels that the hook launched.
    pub(super) holds: u64,
    /// The arms of each block in order.
    #[serde(default)]
    pub(super) order: Vec<String>,
    /// Commit that was built.
    pub(super) commit: String,
    /// When the row was complete.
    pub(super) date: String,
}

impl Row {
    /// One line of text.
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

/// Text for rows with hints.
pub(super) fn hinted(hint: bool) -> &'static str {
    if hint { "hint" } else { "" }
}

#[cfg(test)]
pub(super) mod tests;
