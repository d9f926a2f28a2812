//! A row of the result: requests beside kernels of one length, at one level; and the samples from which it is computed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_load::command_driven::{RunResult, ServeResult};
use sluice_load::samples::Samples;

use super::super::provenance::{commit, date};
use super::preemption_level::PreemptionLevel;

/// Latencies, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    p50: f64,
    p99: f64,
    p999: f64,
}

impl Quantiles {
    /// Quantiles of latencies in nanoseconds.
    fn of<'a>(latencies: impl IntoIterator<Item = &'a u64>) -> Self {
        let all = latencies.into_iter().copied().collect::<Samples>().quantiles();
        Self { p50: all.p50, p99: all.p99, p999: all.p99_9 }
    }
}

/// Number of requests from which a row's latencies were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requests {
    alone: usize,
    stock: usize,
    sluice: usize,
}

/// Requests beside kernels of one length, at one level, with or without hints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) be_kernel_us: u32,
    /// The level that the manager was configured for.
    pub(super) level: PreemptionLevel,
    /// Requests were announced with `sluice_hint`.
    pub(super) hint: bool,
    /// Without other processes and without the hook.
    lc_alone_us: Quantiles,
    /// Beside the kernels without the hook: the driver's time slicing.
    lc_stock_us: Quantiles,
    /// Beside the kernels, both under Sluice.
    lc_sluice_us: Quantiles,
    /// Best-effort kernels per second with Sluice, divided by those alone without the hook.
    be_kept: f64,
    /// 99th percentile with Sluice minus 99th percentile alone.
    added_p99_us: f64,
    /// Relative difference of the 99th percentiles of the two halves measured alone.
    aa_noise: f64,
    /// The two halves measured alone; each is an arm of every block.
    lc_alone_aa_us: [Quantiles; 2],
    requests: Requests,
    /// The same as `be_kept` without the hook.
    be_kept_stock: f64,
    /// Kernels per second alone, without the hook.
    be_alone_per_s: f64,
    /// Number of kernels in `be_kept`, proven by the buffer that each of them changes.
    be_kernels_counted: u64,
    /// Processes by the level that enforced their share, as the manager reported while both ran.
    achieved: BTreeMap<String, u64>,
    /// Count of each result of `sluice_hint`.
    hint_results: BTreeMap<String, u64>,
    /// Hold kernels that the hook launched.
    holds: u64,
    /// The arms of each block in order.
    #[serde(default)]
    order: Vec<String>,
    commit: String,
    /// When the row was complete.
    date: String,
}

impl Row {
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

/// The samples of one arm.
#[derive(Default)]
pub(super) struct ArmSamples {
    /// Nanoseconds.
    pub(super) latencies: Vec<u64>,
    kernels: f64,
    span_ns: u64,
    hints: BTreeMap<String, u64>,
    holds: u64,
    /// The last levels that the manager reported while the samples were taken.
    pub(super) achieved: BTreeMap<String, u64>,
}

/// Result of an accepted `sluice_hint` (SLUICE_OK).
const ACCEPTED: &str = "0";

impl ArmSamples {
    /// Adds a block of requests.
    pub(super) fn served(&mut self, served: ServeResult) {
        self.latencies.extend(served.latencies_ns);
        self.holds += served.holds;
        for (code, times) in served.hints {
            *self.hints.entry(code).or_default() += times;
        }
    }

    /// Adds the kernels beside them.
    pub(super) fn ran(&mut self, ran: &RunResult) {
        self.kernels += ran.kernels;
        self.span_ns += ran.span_ns;
    }

    /// Why the samples do not measure requests with hints; `None` if they do.
    pub(super) fn misses(&self, hint: bool) -> Option<String> {
        let was_accepted = self.hints.get(ACCEPTED).is_some_and(|times| *times > 0);
        (hint && !was_accepted)
            .then(|| format!("no hint was accepted: {:?} by result of sluice_hint", self.hints))
    }

    /// Kernels per second.
    pub(super) fn rate(&self) -> f64 {
        if self.span_ns == 0 { 0.0 } else { self.kernels * 1e9 / self.span_ns as f64 }
    }
}

/// All samples beside kernels of one length.
#[derive(Default)]
pub(super) struct Measurements {
    /// The two halves of each block.
    pub(super) alone: [ArmSamples; 2],
    pub(super) be_alone: ArmSamples,
    pub(super) stock: ArmSamples,
    /// With Sluice: whether with hints, and the samples.
    pub(super) sluice: Vec<(bool, ArmSamples)>,
}

impl Measurements {
    /// The row of these samples with Sluice.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not negative")]
    pub(super) fn row(
        &self,
        be_kernel_us: u32,
        level: PreemptionLevel,
        hint: bool,
        sluice: &ArmSamples,
        order: Vec<String>,
    ) -> Row {
        let Self { alone: [first, second], be_alone, stock, .. } = self;
        let alone: Vec<u64> = [&*first.latencies, &*second.latencies].concat();
        let lc_alone_us = Quantiles::of(&alone);
        let lc_alone_aa_us = [first, second].map(|half| Quantiles::of(&half.latencies));
        let lc_sluice_us = Quantiles::of(&sluice.latencies);
        Row {
            be_kernel_us,
            level,
            hint,
            lc_alone_us,
            lc_stock_us: Quantiles::of(&stock.latencies),
            lc_sluice_us,
            be_kept: sluice.rate() / be_alone.rate(),
            added_p99_us: lc_sluice_us.p99 - lc_alone_us.p99,
            aa_noise: (lc_alone_aa_us[1].p99 / lc_alone_aa_us[0].p99 - 1.0).abs(),
            lc_alone_aa_us,
            requests: Requests {
                alone: alone.len(),
                stock: stock.latencies.len(),
                sluice: sluice.latencies.len(),
            },
            be_kept_stock: stock.rate() / be_alone.rate(),
            be_alone_per_s: be_alone.rate(),
            be_kernels_counted: sluice.kernels.round() as u64,
            achieved: sluice.achieved.clone(),
            hint_results: sluice.hints.clone(),
            holds: sluice.holds,
            order,
            commit: commit(),
            date: date(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
