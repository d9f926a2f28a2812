//! What the arms of a row gather, and the row that follows from it.

use std::collections::BTreeMap;

use sluice_load::commanded::{Ran, Served};
use sluice_load::samples::Samples;

use super::facts;
use super::level::Level;
use super::row::{Quantiles, Requests, Row};

/// What an arm has gathered.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) latencies: Vec<u64>,
    kernels: f64,
    span_ns: u64,
    hints: BTreeMap<String, u64>,
    holds: u64,
    /// What the manager said last while it was gathered.
    pub(super) achieved: BTreeMap<String, u64>,
}

/// Result of a `sluice_hint` that was taken (SLUICE_OK).
const TAKEN: &str = "0";

impl Tally {
    /// Takes in a block of requests.
    pub(super) fn served(&mut self, served: Served) {
        self.latencies.extend(served.latencies_ns);
        self.holds += served.holds;
        for (code, times) in served.hints {
            *self.hints.entry(code).or_default() += times;
        }
    }

    /// Takes in the kernels beside them.
    pub(super) fn ran(&mut self, ran: &Ran) {
        self.kernels += ran.kernels;
        self.span_ns += ran.span_ns;
    }

    /// Why this is no measurement of requests with, or without, hints; nothing if it is one.
    pub(super) fn misses(&self, hint: bool) -> Option<String> {
        let was_taken = self.hints.get(TAKEN).is_some_and(|times| *times > 0);
        (hint && !was_taken).then(|| format!("no hint was taken: {:?} by result of sluice_hint", self.hints))
    }

    /// Kernels per second.
    pub(super) fn rate(&self) -> f64 {
        if self.span_ns == 0 { 0.0 } else { self.kernels * 1e9 / self.span_ns as f64 }
    }

    /// Of the requests.
    pub(super) fn quantiles(&self) -> Quantiles {
        Quantiles::of(&self.latencies.iter().copied().collect::<Samples>())
    }
}

/// Everything that was gathered beside kernels of one length.
#[derive(Default)]
pub(super) struct Gathered {
    /// The two halves of each block.
    pub(super) alone: [Tally; 2],
    pub(super) be_alone: Tally,
    pub(super) stock: Tally,
    /// Under the MPS server without Sluice.
    pub(super) shared: Option<Tally>,
    /// With Sluice; whether with hints.
    pub(super) sluice: Vec<(bool, Tally)>,
}

impl Gathered {
    /// What the rows with and without hints have in common.
    pub(super) fn row(&self, kernel_us: u32, level: Level) -> Row {
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
            lc_mps_us: self.shared.as_ref().map(Tally::quantiles),
            be_kept_mps: self.shared.as_ref().map(|shared| shared.rate() / alone),
            be_alone_per_s: alone,
            be_kernels_counted: 0,
            achieved: BTreeMap::new(),
            hint_results: BTreeMap::new(),
            holds: 0,
            order: Vec::new(),
            commit: facts::commit(),
            date: facts::date(),
        }
    }
}

impl Row {
    /// The row of requests with Sluice.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not negative")]
    pub(super) fn with(self, hint: bool, tally: &Tally, be_alone: &Tally) -> Self {
        let lc_sluice_us = tally.quantiles();
        Self {
            hint,
            lc_sluice_us,
            be_kept: tally.rate() / be_alone.rate(),
            added_p99_us: lc_sluice_us.p99 - self.lc_alone_us.p99,
            requests: Requests { sluice: tally.latencies.len(), ..self.requests },
            be_kernels_counted: tally.kernels.round() as u64,
            achieved: tally.achieved.clone(),
            hint_results: tally.hints.clone(),
            holds: tally.holds,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(results: &[(&str, u64)]) -> Tally {
        let hints = results.iter().map(|(code, times)| ((*code).to_owned(), *times)).collect();
        Tally { hints, ..Tally::default() }
    }

    #[test]
    fn requests_of_which_no_hint_was_taken_are_no_hinted_ones() {
        assert_eq!(with(&[("0", 1), ("9", 3)]).misses(true), None);
        assert_eq!(with(&[]).misses(false), None);
        for refused in [with(&[("10", 24)]), with(&[])] {
            assert!(refused.misses(true).is_some_and(|why| why.contains("no hint was taken")));
        }
        assert!(with(&[("10", 24)]).misses(true).is_some_and(|why| why.contains("10")));
    }

    #[test]
    fn a_block_in_which_nothing_ran_counts_as_time() {
        let mut tally = Tally::default();
        for kernels in [10.0, 0.0] {
            tally.ran(&Ran { kernels, span_ns: 1_000_000_000, ..Ran::default() });
        }
        assert!((tally.rate() - 5.0).abs() < 1e-9, "{}", tally.rate());
    }
}
