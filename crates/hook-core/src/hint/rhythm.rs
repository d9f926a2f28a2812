//! Whether requests come at a steady pace, and when the next one is due.
//!
//! Cameras, control loops and load generators ask at fixed intervals. Where a program does, its next request is known before
//! any of its calls says so, and the GPU can be switched over in time. Programs keep pace in two ways, and which one a program has is
//! told by what is off less: by a clock (a request that the host held up is late alone) or by a pause behind the last request (it moves
//! all that come).

use super::estimate::Expected;

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
struct Reckoning {
    from_ns: f64,
    /// The mean of its last errors' amounts.
    error_ns: f64,
    /// Of more of them.
    compared_ns: f64,
}

impl Reckoning {
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
pub(super) struct Rhythm {
    /// Intervals that the mean is of, nought before the second request.
    known: f64,
    mean_ns: f64,
    /// From the last request.
    last: Option<Reckoning>,
    /// From where a clock would have had it.
    beat: Reckoning,
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
        let Some(last) = &mut self.last else {
            self.last = Some(Reckoning { from_ns: began, ..Reckoning::default() });
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
        let reckoning = Reckoning { from_ns: began, ..Reckoning::default() };
        *self =
            Self { known: 1.0, mean_ns: interval, last: Some(reckoning), beat: reckoning, ..Self::default() };
    }

    /// When the next request is due: by the same clock, with a margin. `None` without a pace that is believed.
    pub(super) fn next(&self) -> Option<Expected> {
        let by_last = |last: &Reckoning| last.compared_ns < CLEARLY * self.beat.compared_ns;
        let better = self.last.filter(by_last).unwrap_or(self.beat);
        let believed = self.believed && self.off <= FORGIVEN;
        let steady = believed && better.margin_ns() <= WIDEST_NS && self.mean_ns <= FURTHEST_NS;
        steady.then_some(Expected { mean_ns: better.from_ns + self.mean_ns, margin_ns: better.margin_ns() })
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

    /// Ten milliseconds, by turns so much more and less.
    fn wavering(by: u64, count: usize) -> impl Iterator<Item = u64> + Clone {
        (0..count).map(move |at| if at % 2 == 0 { 10 * MS + by } else { 10 * MS - by })
    }

    fn steady(count: usize) -> impl Iterator<Item = u64> + Clone {
        wavering(20_000, count)
    }

    #[test]
    fn a_steady_pace_is_foreseen() {
        let rhythm = after(wavering(30_000, 30));
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

    /// A hiccup of 300 us each fifteenth time, by either way to keep pace, which it takes one to learn.
    #[test]
    fn a_hiccup_of_the_host_hides_no_request_behind_it() {
        for by_clock in [true, false] {
            let (mut rhythm, mut now) = (after(steady(30)), 1_300 * MS);
            for at in 1..200_u64 {
                now += 10 * MS;
                let hiccup = if at % 15 == 0 { 300_000 } else { 0 };
                rhythm.learn(now + hiccup);
                now += if by_clock { 0 } else { hiccup };
                let next = rhythm.next().expect("believed");
                if at <= 16 {
                    continue;
                }
                let error = next.mean_ns - (now + 10 * MS) as f64;
                assert!(
                    error.abs() < next.margin_ns && next.margin_ns < 150_000.0,
                    "{at} {by_clock}: {error} {next:?}"
                );
            }
        }
    }

    #[test]
    fn who_wavers_ever_more_is_foreseen_with_a_margin_that_grows() {
        let margin = |by| after(steady(30).chain(wavering(by, 40))).next().map(|next| next.margin_ns);
        assert!(margin(60_000).expect("still a pace") > 1.5 * margin(20_000).expect("a pace"));
        assert_eq!(margin(350_000), None, "too wide to hold for");
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
