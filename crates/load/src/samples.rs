//! Latency samples: exact quantiles, and a histogram to print.

use serde::{Deserialize, Serialize};

/// Samples in nanoseconds, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<u64>);

/// Quantiles of a set of samples, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the samples are not above this.
    pub p50: f64,
    /// 99 of 100 are not above this.
    pub p99: f64,
    /// 999 of 1000 are not above this.
    #[serde(rename = "p99_9")]
    pub p99_9: f64,
    /// The largest.
    pub max: f64,
}

impl Samples {
    /// Adds one sample.
    pub fn push(&mut self, nanoseconds: u64) {
        self.0.push(nanoseconds);
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest sample that at least `share` (0..=1) of all samples do not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        of_sorted(&sorted, share)
    }

    /// Median, p99, p99.9 and maximum.
    pub fn quantiles(&self) -> Quantiles {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let us = |share| of_sorted(&sorted, share) as f64 / 1e3;
        Quantiles { p50: us(0.5), p99: us(0.99), p99_9: us(0.999), max: us(1.0) }
    }

    /// Pairs (upper bound in microseconds, samples), with eight bounds per doubling; empty cells are left out.
    pub fn histogram(&self) -> Vec<(f64, u64)> {
        let mut cells = std::collections::BTreeMap::<u64, u64>::new();
        for &sample in &self.0 {
            *cells.entry(upper_bound(sample)).or_default() += 1;
        }
        cells.into_iter().map(|(bound, count)| (bound as f64 / 1e3, count)).collect()
    }
}

impl FromIterator<u64> for Samples {
    fn from_iter<I: IntoIterator<Item = u64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank of 1..=len; a share outside 0..=1 saturates"
)]
fn of_sorted(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

/// The end of the histogram cell that holds `sample`: the next multiple of an eighth of its leading power of two.
fn upper_bound(sample: u64) -> u64 {
    let step = (1_u64 << sample.max(1).ilog2()) / 8;
    if step == 0 { sample } else { sample.div_ceil(step).saturating_mul(step) }
}

#[cfg(test)]
mod tests;
