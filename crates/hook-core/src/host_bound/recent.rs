//! Whether the process is host-bound: how much of the time of its last bursts was submission-bound.

use super::Burst;

/// Bursts that are remembered: more than the steps of a usual request, so that a long first step does not decide alone.
const REMEMBERED: usize = 64;

/// Bursts with fewer launches are not submission-bound: with few launches, few context switches can be saved.
const MIN_LAUNCHES: u64 = 16;

impl Burst {
    pub(super) fn has_many_launches(self) -> bool {
        self.launches >= MIN_LAUNCHES
    }

    /// Whether more than half of its time passed before the host began to wait.
    fn is_submission_bound(self) -> bool {
        let (submitted, lasted) =
            (self.waited_ns.saturating_sub(self.begun_ns), self.ended_ns.saturating_sub(self.begun_ns));
        self.has_many_launches() && submitted > lasted / 2
    }
}

/// The last bursts.
#[derive(Debug)]
pub(super) struct RecentBursts {
    /// Duration of each, in nanoseconds, and whether it was submission-bound.
    bursts: [(u64, bool); REMEMBERED],
    /// Bursts recorded since the start.
    count: usize,
    is_host_bound: bool,
}

impl Default for RecentBursts {
    fn default() -> Self {
        Self { bursts: [(0, false); REMEMBERED], count: 0, is_host_bound: false }
    }
}

impl RecentBursts {
    /// Records a burst. The process becomes host-bound when 3/4 of the remembered time is submission-bound, and is so until it is less than
    /// half: a share that varies around one of them changes nothing.
    pub(super) fn record(&mut self, burst: Burst) {
        let lasted = burst.ended_ns.saturating_sub(burst.begun_ns);
        self.bursts[self.count % REMEMBERED] = (lasted, burst.is_submission_bound());
        self.count += 1;
        let all: u64 = self.bursts.iter().map(|(lasted, _)| lasted).sum();
        let bound: u64 = self.bursts.iter().filter(|(_, bound)| *bound).map(|(lasted, _)| lasted).sum();
        self.is_host_bound = match self.is_host_bound {
            true => bound >= all / 2,
            false => self.count >= REMEMBERED && bound >= all / 4 * 3,
        };
    }

    pub(super) fn is_host_bound(&self) -> bool {
        self.is_host_bound
    }
}
