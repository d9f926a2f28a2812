//! Estimates how long after its begin a request's first launch comes, with a margin.

/// Weight of a new value in the mean, and in the deviation: as TCP smooths round-trip times.
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;

/// Margin in deviations.
const MARGIN_DEVIATIONS: f64 = 4.0;

/// Smallest margin: the host's own jitter.
const MIN_MARGIN_NS: f64 = 20_000.0;

/// A smoothed time with a margin that grows with its error.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PreparationEstimate {
    known: Option<(f64, f64)>,
}

/// A time that is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExpectedTime {
    /// The mean, in nanoseconds; negative if requests come before their announced time.
    pub(super) mean_ns: f64,
    /// The likely error, in nanoseconds.
    pub(super) margin_ns: f64,
}

impl PreparationEstimate {
    /// Records a value, limited to `limit_ns`: one long pause must not move the mean by much.
    pub(super) fn learn(&mut self, value_ns: f64, limit_ns: f64) {
        let value = value_ns.clamp(-limit_ns, limit_ns);
        self.known = Some(match self.known {
            None => (value, value.abs() / 2.0),
            Some((mean, deviation)) => {
                let error = value - mean;
                (mean + MEAN_WEIGHT * error, deviation + DEVIATION_WEIGHT * (error.abs() - deviation))
            }
        });
    }

    /// The expected time; `None` before the first value.
    pub(super) fn expected(&self) -> Option<ExpectedTime> {
        let (mean_ns, deviation) = self.known?;
        Some(ExpectedTime { mean_ns, margin_ns: (MARGIN_DEVIATIONS * deviation).max(MIN_MARGIN_NS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: &[f64]) -> ExpectedTime {
        let mut estimate = PreparationEstimate::default();
        values.iter().for_each(|value| estimate.learn(*value, 1e7));
        estimate.expected().expect("values were recorded")
    }

    #[test]
    fn steady_values_give_their_mean_and_the_least_margin() {
        let steady = after(&[300_000.0; 64]);
        assert!((steady.mean_ns - 300_000.0).abs() < 1.0);
        assert_eq!(steady.margin_ns, MIN_MARGIN_NS);
    }

    #[test]
    fn the_margin_grows_with_the_error() {
        let wavering: Vec<f64> = (0..64).map(|at| if at % 2 == 0 { 200_000.0 } else { 400_000.0 }).collect();
        let wavering = after(&wavering);
        assert!((wavering.mean_ns - 300_000.0).abs() < 30_000.0);
        assert!(wavering.margin_ns > 300_000.0, "{wavering:?}");
    }

    #[test]
    fn one_long_pause_moves_the_mean_by_a_limited_step() {
        let mut estimate = PreparationEstimate::default();
        (0..64).for_each(|_| estimate.learn(300_000.0, 8e6));
        estimate.learn(1e10, 8e6);
        let mean = estimate.expected().expect("values were recorded").mean_ns;
        assert!(mean < 1_300_000.0, "an eighth of the limit, not of the pause: {mean}");
    }

    #[test]
    fn nothing_is_expected_before_the_first_value() {
        assert_eq!(PreparationEstimate::default().expected(), None);
    }
}
