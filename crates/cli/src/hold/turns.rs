//! Whose turn it is and for how long, so that times come out in proportion whatever the controls take.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// All shares together take so long; turns of 30 to 100 ms cost a few percent (`gpu-measurements.md` §13).
const CYCLE: Duration = Duration::from_millis(150);
/// The shortest turn that is worth its controls.
const SHORTEST: Duration = Duration::from_millis(15);

/// Turns of programs that are always busy.
#[derive(Debug)]
pub(super) struct Turns {
    /// Share and time that it has had, of each.
    programs: Vec<(u32, Duration)>,
}

impl Turns {
    pub(super) fn new(shares: &[u32]) -> Self {
        Self { programs: shares.iter().map(|share| (*share, Duration::ZERO)).collect() }
    }

    /// Who is furthest behind its share, and how long its turn is: until it is a cycle's share ahead of where everybody is now.
    pub(super) fn next(&self) -> (usize, Duration) {
        let sum: u32 = self.programs.iter().map(|(share, _)| share).sum();
        let had: Duration = self.programs.iter().map(|(_, had)| *had).sum();
        let due = |share: u32| (had + CYCLE) * share / sum.max(1);
        let behind = |(share, had): &(u32, Duration)| {
            due(*share).saturating_sub(*had).as_secs_f64() / f64::from(*share)
        };
        let furthest =
            self.programs.iter().enumerate().max_by(|(_, a), (_, b)| behind(a).total_cmp(&behind(b)));
        furthest.map_or((0, CYCLE), |(at, (share, had))| (at, due(*share).saturating_sub(*had).max(SHORTEST)))
    }

    /// A program has run for so long.
    pub(super) fn ran(&mut self, at: usize, time: Duration) {
        if let Some((_, had)) = self.programs.get_mut(at) {
            *had += time;
        }
    }

    /// Time that each has had.
    pub(super) fn times(&self) -> impl Iterator<Item = Duration> {
        self.programs.iter().map(|(_, had)| *had)
    }
}

/// A flag that is set when standard input ends.
pub(super) fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    thread::spawn(move || {
        let mut buffer = [0; 256];
        while matches!(std::io::stdin().read(&mut buffer), Ok(1..)) {}
        flag.store(true, Ordering::Release);
    });
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares after many turns, of which each overruns by this much.
    fn run(shares: &[u32], overrun: Duration) -> (Vec<f64>, Duration) {
        let mut turns = Turns::new(shares);
        let mut shortest = Duration::MAX;
        for _ in 0..600 {
            let (at, length) = turns.next();
            shortest = shortest.min(length);
            turns.ran(at, length + overrun);
        }
        let sum: Duration = turns.times().sum();
        (turns.times().map(|time| time.as_secs_f64() / sum.as_secs_f64()).collect(), shortest)
    }

    #[test]
    fn times_are_in_proportion_whatever_the_controls_take() {
        for overrun in [0, 1, 9].map(Duration::from_millis) {
            for shares in [vec![30, 70], vec![1, 1], vec![10, 20, 30, 40], vec![5, 95]] {
                let (found, shortest) = run(&shares, overrun);
                let sum: u32 = shares.iter().sum();
                for (found, share) in found.iter().zip(&shares) {
                    let wanted = f64::from(*share) / f64::from(sum);
                    assert!((found - wanted).abs() < 0.01, "{shares:?} {overrun:?}: {found} for {wanted}");
                }
                assert!(shortest >= SHORTEST);
            }
        }
    }

    #[test]
    fn nobody_waits_for_much_longer_than_a_cycle() {
        let mut turns = Turns::new(&[10, 20, 70]);
        let mut since = [Duration::ZERO; 3];
        for _ in 0..300 {
            let (at, length) = turns.next();
            turns.ran(at, length);
            since.iter_mut().for_each(|waited| *waited += length);
            since[at] = Duration::ZERO;
            assert!(since.iter().all(|waited| *waited <= 3 * CYCLE), "{since:?}");
        }
    }
}
