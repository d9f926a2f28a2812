//! How long after its announcement a request's first launch comes, and how sure that is.

/// How much a new value moves the mean, and the deviation: as TCP smooths round trips.
const MEAN_PART: f64 = 1.0 / 8.0;
const DEVIATION_PART: f64 = 1.0 / 4.0;

/// Deviations that the margin is wide.
const WIDTH: f64 = 4.0;

/// The margin never falls below this: the host's own jitter.
const LEAST_NS: f64 = 20_000.0;

/// A smoothed time with a margin that grows with its error.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PreparationEstimate {
    known: Option<(f64, f64)>,
}

/// What is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExpectedTime {
    /// The mean, in nanoseconds; below nought if requests come before they are announced to.
    pub(super) mean_ns: f64,
    /// How far off a value may well be, in nanoseconds.
    pub(super) margin_ns: f64,
}

impl PreparationEstimate {
    /// One more value. What is further off than `limit_ns` counts as that much: one long pause is not to be a habit.
    pub(super) fn learn(&mut self, value_ns: f64, limit_ns: f64) {
        let value = value_ns.clamp(-limit_ns, limit_ns);
        self.known = Some(match self.known {
            None => (value, value.abs() / 2.0),
            Some((mean, deviation)) => {
                let error = value - mean;
                (mean + MEAN_PART * error, deviation + DEVIATION_PART * (error.abs() - deviation))
            }
        });
    }

    /// What to expect; `None` before the first value.
    pub(super) fn expected(&self) -> Option<ExpectedTime> {
        let (mean_ns, deviation) = self.known?;
        Some(ExpectedTime { mean_ns, margin_ns: (WIDTH * deviation).max(LEAST_NS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: &[f64]) -> ExpectedTime {
        let mut estimate = PreparationEstimate::default();
        values.iter().for_each(|value| estimate.learn(*value, 1e7));
        estimate.expected().expect("values were learnt")
    }

    #[test]
    fn steady_values_give_their_mean_and_the_least_margin() {
        let steady = after(&[300_000.0; 64]);
        assert!((steady.mean_ns - 300_000.0).abs() < 1.0);
        assert_eq!(steady.margin_ns, LEAST_NS);
    }

    #[test]
    fn the_margin_grows_with_the_error() {
        let wavering: Vec<f64> = (0..64).map(|at| if at % 2 == 0 { 200_000.0 } else { 400_000.0 }).collect();
        let wavering = after(&wavering);
        assert!((wavering.mean_ns - 300_000.0).abs() < 30_000.0);
        assert!(wavering.margin_ns > 300_000.0, "{wavering:?}");
    }

    #[test]
    fn one_long_pause_is_not_a_habit() {
        let mut estimate = PreparationEstimate::default();
        (0..64).for_each(|_| estimate.learn(300_000.0, 8e6));
        estimate.learn(1e10, 8e6);
        let mean = estimate.expected().expect("values were learnt").mean_ns;
        assert!(mean < 1_300_000.0, "an eighth of the limit, not of the pause: {mean}");
    }

    #[test]
    fn nothing_is_expected_before_the_first_value() {
        assert_eq!(PreparationEstimate::default().expected(), None);
    }
}
