//! The order and length of quanta, so that times are in proportion to shares whatever time the controls take.

use std::time::Duration;

/// The time of one cycle through all shares. Quanta of 30 to 100 ms cost a few percent (`docs/reference/gpu.md` §13).
const CYCLE: Duration = Duration::from_millis(150);
/// The shortest quantum. A shorter one would not be worth its controls.
const MIN_QUANTUM: Duration = Duration::from_millis(15);

/// The quanta of processes that are always busy.
#[derive(Debug)]
pub(super) struct QuantumSchedule {
    /// Share of each process, and the time that it has had.
    processes: Vec<(u32, Duration)>,
}

impl QuantumSchedule {
    pub(super) fn new(shares: &[u32]) -> Self {
        Self { processes: shares.iter().map(|share| (*share, Duration::ZERO)).collect() }
    }

    /// The process that is furthest behind its share, and its quantum: until it is one cycle's share ahead of the present.
    pub(super) fn next(&self) -> (usize, Duration) {
        let shares: u32 = self.processes.iter().map(|(share, _)| share).sum();
        let total: Duration = self.processes.iter().map(|(_, time)| *time).sum();
        let entitled = |share: u32| (total + CYCLE) * share / shares.max(1);
        let lag = |(share, time): &(u32, Duration)| {
            entitled(*share).saturating_sub(*time).as_secs_f64() / f64::from(*share)
        };
        let furthest_behind =
            self.processes.iter().enumerate().max_by(|(_, a), (_, b)| lag(a).total_cmp(&lag(b)));
        furthest_behind.map_or((0, CYCLE), |(index, (share, time))| {
            (index, entitled(*share).saturating_sub(*time).max(MIN_QUANTUM))
        })
    }

    /// Adds time in which a process ran.
    pub(super) fn add(&mut self, index: usize, time: Duration) {
        if let Some((_, total)) = self.processes.get_mut(index) {
            *total += time;
        }
    }

    /// The time that each process has had.
    pub(super) fn times(&self) -> impl Iterator<Item = Duration> {
        self.processes.iter().map(|(_, time)| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the time of each process after 600 quanta, each of which overruns by this much; and the shortest quantum.
    fn run(shares: &[u32], overrun: Duration) -> (Vec<f64>, Duration) {
        let mut schedule = QuantumSchedule::new(shares);
        let mut shortest = Duration::MAX;
        for _ in 0..600 {
            let (index, quantum) = schedule.next();
            shortest = shortest.min(quantum);
            schedule.add(index, quantum + overrun);
        }
        let sum: Duration = schedule.times().sum();
        (schedule.times().map(|time| time.as_secs_f64() / sum.as_secs_f64()).collect(), shortest)
    }

    #[test]
    fn times_are_in_proportion_to_shares_whatever_quanta_overrun() {
        for overrun in [0, 1, 9].map(Duration::from_millis) {
            for shares in [vec![30, 70], vec![1, 1], vec![10, 20, 30, 40], vec![5, 95]] {
                let (found, shortest) = run(&shares, overrun);
                let sum: u32 = shares.iter().sum();
                for (found, share) in found.iter().zip(&shares) {
                    let expected = f64::from(*share) / f64::from(sum);
                    assert!(
                        (found - expected).abs() < 0.01,
                        "{shares:?} {overrun:?}: {found} instead of {expected}"
                    );
                }
                assert!(shortest >= MIN_QUANTUM);
            }
        }
    }

    #[test]
    fn no_process_waits_longer_than_three_cycles() {
        let mut schedule = QuantumSchedule::new(&[10, 20, 70]);
        let mut waited = [Duration::ZERO; 3];
        for _ in 0..300 {
            let (index, quantum) = schedule.next();
            schedule.add(index, quantum);
            waited.iter_mut().for_each(|waited| *waited += quantum);
            waited[index] = Duration::ZERO;
            assert!(waited.iter().all(|waited| *waited <= 3 * CYCLE), "{waited:?}");
        }
    }
}
