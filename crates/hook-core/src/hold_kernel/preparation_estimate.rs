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
pub struct ExpectedTime {
    /// The mean, in nanoseconds; negative if requests come before their announced time.
    pub mean_ns: f64,
    /// The likely error, in nanoseconds.
    pub margin_ns: f64,
}

impl ExpectedTime {
    /// The earliest likely time, in nanoseconds.
    #[must_use]
    pub fn earliest_ns(self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a clock's value some intervals of at most a second ahead; the conversion saturates"
        )]
        let earliest = (self.mean_ns - self.margin_ns) as u64;
        earliest
    }
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

    /// The mean error, in nanoseconds; 0 before the first value.
    pub(super) fn error_ns(&self) -> f64 {
        self.known.map_or(0.0, |(_, deviation)| deviation)
    }

    /// The expected time; `None` before the first value.
    pub(super) fn expected(&self) -> Option<ExpectedTime> {
        let (mean_ns, deviation) = self.known?;
        Some(ExpectedTime { mean_ns, margin_ns: (MARGIN_DEVIATIONS * deviation).max(MIN_MARGIN_NS) })
    }
}

#[cfg(test)]
mod tests;
