//! The samples of a row's arms, and the row that is computed from them.

use std::collections::BTreeMap;

use sluice_load::command_driven::{RunResult, ServeResult};
use sluice_load::samples::Samples;

use super::preemption_level::PreemptionLevel;
use super::provenance;
use super::row::{Quantiles, Requests, Row};

/// The samples of one arm.
#[derive(Default)]
pub(super) struct ArmSamples {
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

    /// Quantiles of the requests.
    pub(super) fn quantiles(&self) -> Quantiles {
        Quantiles::of(&self.latencies.iter().copied().collect::<Samples>())
    }
}

/// All samples beside kernels of one length.
#[derive(Default)]
pub(super) struct Measurements {
    /// The two halves of each block.
    pub(super) alone: [ArmSamples; 2],
    pub(super) be_alone: ArmSamples,
    pub(super) stock: ArmSamples,
    /// Under the MPS server without Sluice.
    pub(super) shared: Option<ArmSamples>,
    /// With Sluice: whether with hints, and the samples.
    pub(super) sluice: Vec<(bool, ArmSamples)>,
}

impl Measurements {
    /// The part that rows with and without hints have in common.
    pub(super) fn row(&self, kernel_us: u32, level: PreemptionLevel) -> Row {
        let pooled: Samples = self.alone.iter().flat_map(|half| half.latencies.iter().copied()).collect();
        let (first, second) = (self.alone[0].quantiles(), self.alone[1].quantiles());
        let alone = self.be_alone.rate();
        Row {
            be_kernel_us: kernel_us,
            level,
            hint: false,
            lc_alone_us: Quantiles::of(&pooled),
            lc_stock_us: self.stock.quantiles(),
            lc_sluice_us: Quantiles::default(),
            be_kept: 0.0,
            added_p99_us: 0.0,
            aa_noise: (second.p99 / first.p99 - 1.0).abs(),
            lc_alone_aa_us: [first, second],
            requests: Requests { alone: pooled.len(), stock: self.stock.latencies.len(), sluice: 0 },
            be_kept_stock: self.stock.rate() / alone,
            lc_mps_us: self.shared.as_ref().map(ArmSamples::quantiles),
            be_kept_mps: self.shared.as_ref().map(|shared| shared.rate() / alone),
            be_alone_per_s: alone,
            be_kernels_counted: 0,
            achieved: BTreeMap::new(),
            hint_results: BTreeMap::new(),
            holds: 0,
            order: Vec::new(),
            commit: provenance::commit(),
            date: provenance::date(),
        }
    }
}

impl Row {
    /// The row of requests with Sluice.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not negative")]
    pub(super) fn with(self, hint: bool, samples: &ArmSamples, be_alone: &ArmSamples) -> Self {
        let lc_sluice_us = samples.quantiles();
        Self {
            hint,
            lc_sluice_us,
            be_kept: samples.rate() / be_alone.rate(),
            added_p99_us: lc_sluice_us.p99 - self.lc_alone_us.p99,
            requests: Requests { sluice: samples.latencies.len(), ..self.requests },
            be_kernels_counted: samples.kernels.round() as u64,
            achieved: samples.achieved.clone(),
            hint_results: samples.hints.clone(),
            holds: samples.holds,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
