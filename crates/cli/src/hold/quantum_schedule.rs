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
mod tests;
