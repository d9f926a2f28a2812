//! Whether requests come at a steady pace, and when the next one is due.
//!
//! Cameras, control loops and load generators ask at fixed intervals. Where a program does, its next request is known before
//! any of its calls says so, and the GPU can be switched over in time.

use super::estimate::{Estimate, Expected};

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

/// Requests further apart are not held to have a pace.
const FURTHEST_NS: f64 = 1e9;

/// The pace of a device's requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rhythm {
    last_ns: Option<u64>,
    /// Where the last request belongs. Programs that keep a clock of their own are in step with it again right after one that was late.
    beat_ns: f64,
    interval: Estimate,
    in_step: u32,
    /// Enough requests were in step since it is this pace that is looked for.
    believed: bool,
    /// Intervals off in a row.
    off: u32,
}

impl Rhythm {
    /// A request began.
    pub(super) fn learn(&mut self, began_ns: u64) {
        let began = began_ns as f64;
        let Some(last) = self.last_ns.replace(began_ns) else { return };
        let interval = began_ns.saturating_sub(last) as f64;
        let Some(mean) = self.interval.expected().map(|known| known.mean_ns) else {
            return self.begin(began, interval);
        };
        let since_beat = began - self.beat_ns;
        // In step with the last request, or with the beat if that one was off.
        if let Some(interval) =
            [interval, since_beat].into_iter().find(|so_far| (so_far - mean).abs() <= OFF_NS)
        {
            self.interval.learn(interval, FURTHEST_NS);
            self.in_step = self.in_step.saturating_add(1);
            self.believed |= self.in_step >= ENOUGH;
            (self.off, self.beat_ns) = (0, began);
        } else if self.off >= ANOTHER {
            self.begin(began, interval);
        } else {
            // Late, or early: the next one is where it would have been. Else it is a pace behind this one.
            let near = self.believed && self.off == 0 && (interval - mean).abs() < mean / 2.0;
            self.beat_ns = if near { self.beat_ns + mean } else { began };
            self.in_step = 0;
            self.off += 1;
        }
    }

    fn begin(&mut self, began: f64, interval: f64) {
        let interval = Estimate::exactly(interval);
        *self = Self { last_ns: self.last_ns, beat_ns: began, interval, ..Self::default() };
    }

    /// When the next request is due: by the same clock, with a margin. `None` without a pace that is believed.
    pub(super) fn next(&self) -> Option<Expected> {
        let interval = self.interval.expected()?;
        let believed = self.believed && self.off <= FORGIVEN;
        let steady = believed && interval.margin_ns <= WIDEST_NS && interval.mean_ns <= FURTHEST_NS;
        steady.then_some(Expected { mean_ns: self.beat_ns + interval.mean_ns, ..interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn after(intervals: impl IntoIterator<Item = u64>) -> Rhythm {
        let mut rhythm = Rhythm::default();
        let mut now = 1_000 * MS;
        rhythm.learn(now);
        for interval in intervals {
            now += interval;
            rhythm.learn(now);
        }
        rhythm
    }

    /// Ten milliseconds, give or take.
    fn steady(count: usize) -> impl Iterator<Item = u64> + Clone {
        (0..count).map(|at| if at % 2 == 0 { 10 * MS + 20_000 } else { 10 * MS - 20_000 })
    }

    #[test]
    fn a_steady_pace_is_foreseen() {
        let rhythm = after(steady(30));
        let next = rhythm.next().expect("every ten milliseconds");
        let due = (1_000 + 31 * 10) as f64 * MS as f64;
        assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}, {due}");
        assert!(next.margin_ns > 60_000.0, "as wide as the wavering is: {next:?}");
    }

    #[test]
    fn a_few_requests_are_no_pace() {
        assert_eq!(after(steady(3)).next(), None);
    }

    #[test]
    fn requests_that_come_as_they_like_are_not_foreseen() {
        let mut state = 7_u64;
        let mut interval = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            MS + (state >> 33) % (20 * MS)
        };
        let mut rhythm = Rhythm::default();
        let mut now = 0;
        for _ in 0..2_000 {
            now += interval();
            rhythm.learn(now);
            assert_eq!(rhythm.next(), None);
        }
    }

    #[test]
    fn a_pace_is_foreseen_behind_a_pause_as_before_it() {
        for pause in [20 * MS, 2_000 * MS] {
            let next = after(steady(30).chain([pause])).next().expect("believed");
            let due = (1_300 * MS + pause + 10 * MS) as f64;
            assert!((next.mean_ns - due).abs() < 30_000.0, "{next:?}");
        }
    }

    #[test]
    fn a_program_that_does_something_else_and_pauses_goes_on_as_before() {
        let other = steady(600).chain([MS, 2_000 * MS]);
        let next = after(other).next().expect("believed");
        assert!(
            (next.mean_ns - (1_000 + 6_000 + 2_001 + 10) as f64 * MS as f64).abs() < 30_000.0,
            "{next:?}"
        );
        // What was never believed is not remembered.
        assert_eq!(after(steady(7).chain([MS, 2_000 * MS]).chain(steady(7))).next(), None);
    }

    #[test]
    fn who_is_off_again_and_again_is_foreseen_no_more_until_one_is_in_step() {
        let off = |count: usize| steady(30).chain((0..count).map(|at| (30 + 7 * at as u64) * MS));
        assert!(after(off(2)).next().is_some());
        for count in [3, 4] {
            assert_eq!(after(off(count)).next(), None, "{count} in a row");
            assert!(after(off(count).chain(steady(1))).next().is_some(), "{count} in a row");
        }
        assert_eq!(after(off(5).chain(steady(1))).next(), None, "another pace is looked for");
    }

    #[test]
    fn one_that_is_late_or_early_costs_the_pace_nothing() {
        for off in [700_000_i64, -700_000] {
            let stumbles = steady(30).chain([(10 * MS).strict_add_signed(off)]);
            let due = |beats: u64| (1_000 + beats * 10) as f64 * MS as f64;
            let next = after(stumbles.clone()).next().expect("the next is on the beat");
            assert!((next.mean_ns - due(32)).abs() < 60_000.0, "{next:?}");
            let on_beat = stumbles.clone().chain([(10 * MS).strict_add_signed(-off)]);
            let next = after(on_beat).next().expect("it was");
            assert!((next.mean_ns - due(33)).abs() < 60_000.0, "{next:?}");
            // Those who count from the last one are followed.
            let next = after(stumbles.chain([10 * MS])).next().expect("in step with the last");
            assert!((next.mean_ns - due(33) - off as f64).abs() < 60_000.0, "{next:?}");
        }
    }

    #[test]
    fn another_pace_is_found() {
        let rhythm = after(steady(30).chain((0..30).map(|_| 4 * MS)));
        let next = rhythm.next().expect("every four milliseconds");
        assert!((next.mean_ns - (1_300 + 31 * 4) as f64 * MS as f64).abs() < 30_000.0, "{next:?}");
    }

    #[test]
    fn requests_minutes_apart_have_no_pace() {
        assert_eq!(after((0..30).map(|_| 60_000 * MS)).next(), None);
    }
}
