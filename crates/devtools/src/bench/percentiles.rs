//! Medians and percentiles of samples.

use serde::{Deserialize, Serialize};
use sluice_load::samples::Samples;

/// Median and 99th percentile, in the unit that the field's name gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Median.
    pub(crate) p50: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
}

impl Percentiles {
    /// Percentiles of samples of which `per_unit` make one unit of the result.
    pub(crate) fn of(samples: &Samples, per_unit: f64) -> Self {
        Self { p50: samples.quantile(0.5) as f64 / per_unit, p99: samples.quantile(0.99) as f64 / per_unit }
    }
}

/// The median; 0 if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => f64::midpoint(*upper, values.get(middle - 1).copied().unwrap_or(*upper)),
    }
}

#[cfg(test)]
mod tests;
