//! Predicts when the next request is due, if requests arrive at regular intervals.
//!
//! Cameras, control loops and load generators send requests at fixed intervals. The next request of such a program is intervals before any
//! of its calls, so the GPU can be switched in time. There are two kinds of programs. One follows a clock: a request that the host
//! delayed is late alone. The other pauses after each request: a delay moves all later requests. The predictor tracks both and uses the
//! one with the smaller error.

use super::preparation_estimate::ExpectedTime;

/// An interval with a larger error is out of step and does not enter the mean.
const MAX_ERROR_NS: f64 = 400_000.0;

/// Intervals in step before predictions begin.
const MIN_IN_STEP: u32 = 8;

/// Successive intervals out of step after which predictions go on: a program that paused, or did other work for a moment, usually resumes
/// its interval. If it does not, this many hold kernels are useless.
const TOLERATED_MISSES: u32 = 2;

/// Successive intervals out of step after which another interval is learned from the beginning.
const RESTART_MISSES: u32 = 4;

/// Largest margin of a prediction: a longer hold kernel costs other clients too much if no request comes.
const MAX_MARGIN_NS: f64 = 400_000.0;

/// Smallest margin of a prediction: the host's own jitter.
const MIN_MARGIN_NS: f64 = 20_000.0;

/// Longest interval that is predicted.
const MAX_INTERVAL_NS: f64 = 1e9;

/// Number of intervals in the moving mean.
const MEAN_INTERVALS: f64 = 32.0;

/// Largest part of an error that moves the mean. It is the same for both signs: after a request of a clock that was late comes an interval
/// that is shorter by the same amount.
const MAX_MEAN_STEP_NS: f64 = 100_000.0;

/// Margin in mean errors, and weight of one error in that mean.
const MARGIN_ERRORS: f64 = 4.0;
const ERROR_WEIGHT: f64 = 1.0 / 4.0;

/// An error counts as at most this much more than the margin: one delay of the host does not predict the next one.
const MAX_EXCESS_NS: f64 = 50_000.0;

/// Weight of one error in the mean by which the two references are compared, and the factor by which that of the last request has to be
/// smaller.
const COMPARISON_WEIGHT: f64 = 1.0 / 64.0;
const COMPARISON_FACTOR: f64 = 0.75;

/// Part of an error that moves the clock's reference.
const CLOCK_WEIGHT: f64 = 1.0 / 8.0;

/// A time from which the next request is predicted, and the errors of its predictions.
#[derive(Debug, Clone, Copy, Default)]
struct IntervalReference {
    since_ns: f64,
    /// The moving mean of the absolute errors.
    error_ns: f64,
    /// The same over more errors, for the comparison.
    comparison_ns: f64,
}

impl IntervalReference {
    fn margin_ns(self) -> f64 {
        (MARGIN_ERRORS * self.error_ns).max(MIN_MARGIN_NS)
    }

    /// The part of an error that counts.
    fn counted(self, error_ns: f64) -> f64 {
        let most = self.margin_ns() + MAX_EXCESS_NS;
        error_ns.clamp(-most, most)
    }

    fn learn(&mut self, error_ns: f64) {
        let counted = self.counted(error_ns).abs();
        self.error_ns += ERROR_WEIGHT * (counted - self.error_ns);
        self.comparison_ns += COMPARISON_WEIGHT * (counted - self.comparison_ns);
    }
}

/// The predictor of a device's requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArrivalPredictor {
    /// Intervals in the mean; 0 before the second request.
    intervals: f64,
    mean_ns: f64,
    /// The last request.
    last: Option<IntervalReference>,
    /// The time that a clock would have given the last request.
    clock: IntervalReference,
    in_step: u32,
    /// Enough requests were in step since this interval is being learned.
    is_established: bool,
    /// Successive intervals out of step.
    misses: u32,
}

impl ArrivalPredictor {
    /// Records that a request began.
    pub fn learn(&mut self, began_ns: u64) {
        let began = began_ns as f64;
        let Some(last) = &mut self.last else {
            self.last = Some(IntervalReference { since_ns: began, ..IntervalReference::default() });
            return;
        };
        let interval = began - std::mem::replace(&mut last.since_ns, began);
        if self.intervals == 0.0 {
            return self.begin(began, interval);
        }
        let (late, behind) = (interval - self.mean_ns, began - self.clock.since_ns - self.mean_ns);
        let (by_last, by_clock) = (late.abs() <= MAX_ERROR_NS, behind.abs() <= MAX_ERROR_NS);
        if by_last || by_clock {
            if by_last {
                self.intervals += 1.0;
                self.mean_ns +=
                    late.clamp(-MAX_MEAN_STEP_NS, MAX_MEAN_STEP_NS) / self.intervals.min(MEAN_INTERVALS);
            }
            self.clock.since_ns = match by_clock {
                true => began - behind + CLOCK_WEIGHT * self.clock.counted(behind),
                false => began,
            };
            last.learn(late);
            self.clock.learn(behind);
            self.in_step = self.in_step.saturating_add(1);
            self.is_established |= self.in_step >= MIN_IN_STEP;
            self.misses = 0;
        } else if self.misses >= RESTART_MISSES {
            self.begin(began, interval);
        } else {
            // Late or early. The clock's reference advances by one interval if the error is small; otherwise it restarts here.
            let near = self.is_established && self.misses == 0 && late.abs() < self.mean_ns / 2.0;
            self.clock.since_ns = if near { self.clock.since_ns + self.mean_ns } else { began };
            self.in_step = 0;
            self.misses += 1;
        }
    }

    fn begin(&mut self, began: f64, interval: f64) {
        let reference = IntervalReference { since_ns: began, ..IntervalReference::default() };
        *self = Self {
            intervals: 1.0,
            mean_ns: interval,
            last: Some(reference),
            clock: reference,
            ..Self::default()
        };
    }

    /// The mean interval, in nanoseconds.
    pub(crate) fn interval_ns(&self) -> f64 {
        self.mean_ns
    }

    /// The reference with the smaller error.
    fn better(&self) -> IntervalReference {
        let by_last =
            |last: &IntervalReference| last.comparison_ns < COMPARISON_FACTOR * self.clock.comparison_ns;
        self.last.filter(by_last).unwrap_or(self.clock)
    }

    /// The mean error of the predictions, in nanoseconds; 0 while intervals are irregular, so that none are made.
    pub(super) fn error_ns(&self) -> f64 {
        if self.next().is_some() { self.better().error_ns } else { 0.0 }
    }

    /// When the next request is due, by the host's clock, with a margin. `None` while intervals are irregular.
    #[must_use]
    pub fn next(&self) -> Option<ExpectedTime> {
        let better = self.better();
        let is_established = self.is_established && self.misses <= TOLERATED_MISSES;
        let steady = is_established && better.margin_ns() <= MAX_MARGIN_NS && self.mean_ns <= MAX_INTERVAL_NS;
        steady.then_some(ExpectedTime {
            mean_ns: better.since_ns + self.mean_ns,
            margin_ns: better.margin_ns(),
        })
    }
}

#[cfg(test)]
mod tests;
