//! Stalled processes: a process that reports work and makes no progress counts as idle, so that it wastes no quanta.
//!
//! A report alone proves nothing, as a frozen process cannot correct it. The evidence comes from the kernel: the CPU clock of
//! the process. While a process has work on the GPU, the hook's tracker thread wakes at least each 20 ms, also during one
//! very long kernel. Therefore a process of which the CPU clock and the report page stand still for two quanta in which it may
//! run is stopped, frozen or hung. One that is known to be stopped need not be observed for that long.

use super::process::Activity;

/// How often a process is observed, nanoseconds.
const INTERVAL_NS: u64 = 50_000_000;
/// A process that is still for this time while it may run is stalled: two quanta, nanoseconds.
const STALLED_NS: u64 = 100_000_000;

/// What changes while a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// CPU time that all its threads have used, nanoseconds.
    pub cpu_ns: u64,
    /// GPU time that its report page shows, nanoseconds.
    pub gpu_ns: u64,
    /// The activity that its report page shows.
    pub activity: Activity,
}

/// Decides whether one process is stalled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallDetector {
    /// The last observation, and when it was made.
    last: Option<(Progress, u64)>,
    /// Since when it may run on the GPU, if it may.
    runs_since: Option<u64>,
    /// For how long it was allowed to run since it was last seen to move.
    still_ns: u64,
    stalled_since: Option<u64>,
}

impl StallDetector {
    /// Whether it is time for an observation.
    pub fn is_due(&self, now: u64) -> bool {
        self.last.is_none_or(|(_, at)| now >= at.saturating_add(INTERVAL_NS))
    }

    /// Since when the process is stalled, as far as the observations show.
    pub const fn stalled_since(&self) -> Option<u64> {
        self.stalled_since
    }

    /// The activity that counts, given the activity on the report page.
    pub fn activity(&self, reported: Activity) -> Activity {
        match (self.stalled_since, self.last) {
            (Some(since_ns), Some((last, _))) if last.activity == reported => {
                Activity { busy: false, since_ns }
            }
            _ => reported,
        }
    }

    /// From `now` on the process may run on the GPU, or may not any more.
    pub fn set_running(&mut self, may_run: bool, now: u64) {
        let ran = self.runs_since.map_or(0, |since| now.saturating_sub(since));
        self.still_ns = self.still_ns.saturating_add(ran);
        self.runs_since = may_run.then_some(now);
    }

    /// Records an observation, after [`Self::set_running`]. `is_stopped` is called if that matters: whether the kernel reports
    /// the process as stopped.
    pub fn observe(&mut self, progress: Progress, is_stopped: impl FnOnce() -> bool, now: u64) {
        let is_still = self.last.is_some_and(|(last, _)| last == progress);
        self.last = Some((progress, now));
        if !is_still {
            (self.still_ns, self.stalled_since) = (0, None);
        } else if self.stalled_since.is_none()
            && progress.activity.busy
            && (self.still_ns >= STALLED_NS || is_stopped())
        {
            self.stalled_since = Some(now);
        }
    }
}
