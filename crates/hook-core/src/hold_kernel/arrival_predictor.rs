//! Whether requests come at a steady pace, and when the next one is due.
//!
//! Cameras, control loops and load generators ask at fixed intervals. Where a program does, its next request is known before
//! any of its calls says so, and the GPU can be switched over in time. Programs keep pace in two ways, and which one a program has is
//! told by what is off less: by a clock (a request that the host held up is late alone) or by a pause behind the last request (it moves
//! all that come).

use super::preparation_estimate::ExpectedTime;

/// An interval this much off is not the pace's, and no part of its mean.
const OFF_NS: f64 = 400_000.0;

/// Intervals in step before the pace is believed.
const ENOUGH: u32 = 8;

/// Intervals off in a row after which a pace that is believed is still foreseen: a program that paused, or did something else for a
/// moment, goes on as it did. Of those that do not, so many holds are for nothing.
const FORGIVEN: u32 = 2;

/// Intervals off in a row after which another pace is looked for.
const ANOTHER: u32 = 4;

/// The margin of a pace that is believed, at most: a hold as long as that is too much for nothing.
const WIDEST_NS: f64 = 400_000.0;

/// The margin of a pace at least: the host's own jitter.
const NARROWEST_NS: f64 = 20_000.0;

/// Requests further apart are not held to have a pace.
const FURTHEST_NS: f64 = 1e9;

/// How many intervals the mean is taken of, once there are so many.
const MEAN_OF: f64 = 32.0;

/// As much of an interval's error as moves the mean. The same for both signs at all times: behind a clock's request that is late by a
/// hiccup comes one that is early by as much.
const MOVES_NS: f64 = 100_000.0;

/// Mean errors that the margin is wide, and how much one error moves their mean.
const WIDTH: f64 = 4.0;
const ERROR_PART: f64 = 1.0 / 4.0;

/// An error counts as at most this much more than the margin: a hiccup of the host's is no reason to expect the next one.
const HICCUP_NS: f64 = 50_000.0;

/// Likewise for the mean by which the two ways are compared, and how much smaller it has to be for a pace not to be a clock's.
const COMPARED_PART: f64 = 1.0 / 64.0;
const CLEARLY: f64 = 0.75;

/// How far a request moves a clock's beat that it is off.
const BEAT_PART: f64 = 1.0 / 8.0;

/// A point from which the next request is reckoned, and how well that went.
#[derive(Debug, Clone, Copy, Default)]
struct IntervalReference {
    from_ns: f64,
    /// The mean of its last errors' amounts.
    error_ns: f64,
    /// Of more of them.
    compared_ns: f64,
}

impl IntervalReference {
    fn margin_ns(self) -> f64 {
        (WIDTH * self.error_ns).max(NARROWEST_NS)
    }

    /// As much of an error as counts.
    fn counted(self, error_ns: f64) -> f64 {
        let most = self.margin_ns() + HICCUP_NS;
        error_ns.clamp(-most, most)
    }

    fn learn(&mut self, error_ns: f64) {
        let counted = self.counted(error_ns).abs();
        self.error_ns += ERROR_PART * (counted - self.error_ns);
        self.compared_ns += COMPARED_PART * (counted - self.compared_ns);
    }
}

/// The pace of a device's requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArrivalPredictor {
    /// Intervals that the mean is of, nought before the second request.
    known: f64,
    mean_ns: f64,
    /// From the last request.
    last: Option<IntervalReference>,
    /// From where a clock would have had it.
    beat: IntervalReference,
    in_step: u32,
    /// Enough requests were in step since it is this pace that is looked for.
    believed: bool,
    /// Intervals off in a row.
    off: u32,
}

impl ArrivalPredictor {
    /// A request began.
    pub(super) fn learn(&mut self, began_ns: u64) {
        let began = began_ns as f64;
        let Some(last) = &mut self.last else {
            self.last = Some(IntervalReference { from_ns: began, ..IntervalReference::default() });
            return;
        };
        let interval = began - std::mem::replace(&mut last.from_ns, began);
        if self.known == 0.0 {
            return self.begin(began, interval);
        }
        let (late, behind) = (interval - self.mean_ns, began - self.beat.from_ns - self.mean_ns);
        let (by_last, by_beat) = (late.abs() <= OFF_NS, behind.abs() <= OFF_NS);
        if by_last || by_beat {
            if by_last {
                self.known += 1.0;
                self.mean_ns += late.clamp(-MOVES_NS, MOVES_NS) / self.known.min(MEAN_OF);
            }
            self.beat.from_ns = match by_beat {
                true => began - behind + BEAT_PART * self.beat.counted(behind),
                false => began,
            };
            last.learn(late);
            self.beat.learn(behind);
            self.in_step = self.in_step.saturating_add(1);
            self.believed |= self.in_step >= ENOUGH;
            self.off = 0;
        } else if self.off >= ANOTHER {
            self.begin(began, interval);
        } else {
            // Late, or early: by a clock the next one is where it would have been. Else the pace begins anew here.
            let near = self.believed && self.off == 0 && late.abs() < self.mean_ns / 2.0;
            self.beat.from_ns = if near { self.beat.from_ns + self.mean_ns } else { began };
            self.in_step = 0;
            self.off += 1;
        }
    }

    fn begin(&mut self, began: f64, interval: f64) {
        let reckoning = IntervalReference { from_ns: began, ..IntervalReference::default() };
        *self =
            Self { known: 1.0, mean_ns: interval, last: Some(reckoning), beat: reckoning, ..Self::default() };
    }

    /// When the next request is due: by the same clock, with a margin. `None` without a pace that is believed.
    pub(super) fn next(&self) -> Option<ExpectedTime> {
        let by_last = |last: &IntervalReference| last.compared_ns < CLEARLY * self.beat.compared_ns;
        let better = self.last.filter(by_last).unwrap_or(self.beat);
        let believed = self.believed && self.off <= FORGIVEN;
        let steady = believed && better.margin_ns() <= WIDEST_NS && self.mean_ns <= FURTHEST_NS;
        steady
            .then_some(ExpectedTime { mean_ns: better.from_ns + self.mean_ns, margin_ns: better.margin_ns() })
    }
}

#[cfg(test)]
#[path = "arrival_predictor_tests.rs"]
mod tests;
