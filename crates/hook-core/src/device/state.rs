//! The state of a device, behind one lock. The lock is never held across a wait, a driver call or an answer from the manager.

use super::sampling::BurstSampling;
use super::waiting_commands::CommandsAhead;
use crate::burst_admission::BurstAdmission;
use crate::gpu_time_estimate::GpuTimeEstimate;
use crate::hold_kernel;
use crate::host_bound::HostBoundTest;
use crate::latency::LatencyMeter;
use crate::period_predictor::{
    BURST_MERGE_MS, PeriodPredictor, Quantile, WINDOW_MERGE_MS, estimate_full_burst,
};
use crate::platform::Mark;
use crate::streams::StreamSet;

/// Least time between two bursts that events measure, besides the first burst of each grant, and between two waits that record an end.
/// An event costs some microseconds, so measuring takes about a thousandth of the time.
pub(super) const MEASURE_INTERVAL_NS: u64 = 10_000_000;

/// Settings of a device.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// After this idle time the token is returned, in nanoseconds.
    pub idle_ns: u64,
    /// The quantile that the predictors return.
    pub quantile: Quantile,
    /// Block launches while there is no manager, until the manager's page states otherwise.
    pub fail_closed: bool,
    /// How long a launch waits for the drain of the last grant. The drain may be waiting for that same launch.
    pub stall_ns: u64,
    /// For how long the tracker polls before and after the end of a grant for which another client waits, in nanoseconds; 0: never.
    pub polling_ns: u64,
    /// When hold kernels are used.
    pub hold_kernels: hold_kernel::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle_ns: 500_000,
            quantile: Quantile::P90,
            fail_closed: false,
            stall_ns: 5_000_000_000,
            polling_ns: 0,
            hold_kernels: hold_kernel::Settings::default(),
        }
    }
}

/// The state of the device towards its manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// Never connected.
    #[default]
    Detached,
    /// Attached; no grant is held or requested.
    Closed,
    /// A grant was requested and the answer has not been read.
    Requested,
    /// A grant is held. The grant page tells whether its deadline has passed.
    Open,
    /// The grant has ended and its work is finishing.
    Draining,
    /// The connection was lost; the tracker connects again at the given time.
    Lost {
        /// When to connect again.
        retry_ns: u64,
    },
}

/// An event before the first launch of a burst.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) mark: Mark,
    /// When the event was recorded, by the host's clock.
    pub(super) at_ns: u64,
    /// Number of the burst within the grant.
    pub(super) burst: u64,
}

/// The grant held, or the last one.
#[derive(Debug, Default)]
pub(super) struct Grant {
    /// Number of the grant in this process, from 1.
    pub(super) number: u64,
    /// `u64::MAX` for an unlimited grant.
    pub(super) deadline_ns: u64,
    pub(super) quota_ms: f64,
    /// GPU time of the bursts that ended within the grant.
    pub(super) busy_ns: u64,
    /// Bursts begun within the grant.
    pub(super) bursts: u64,
    /// The begin of a burst that events measure.
    pub(super) measured: Option<Measured>,
    /// When the last work ended; the grant's begin if there was no work.
    pub(super) idle_since_ns: Option<u64>,
    /// The typical window is long enough to return the token at once.
    pub(super) return_at_once: bool,
}

impl Grant {
    /// The begin of the last burst, if that burst is being measured.
    pub(super) fn current_measurement(&self) -> Option<Measured> {
        self.measured.filter(|measured| measured.burst == self.bursts)
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.deadline_ns == u64::MAX
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// A thread waits for the manager's answer.
    pub(super) is_answer_awaited: bool,
    /// Threads inside calls that wait for the GPU.
    pub(super) blocked_threads: usize,
    /// Since when each poll of the tracker has found blocked threads.
    pub(super) blocked_since_ns: Option<u64>,
    /// The program polls for the completion of work.
    pub(super) polling: bool,
    /// Until when a hold kernel keeps the GPU for the rest of a request, after work has finished.
    pub(super) holds_until_ns: Option<u64>,
    /// Threads that wait for a grant.
    pub(super) waiting_launches: usize,
    /// When the program last submitted a command that needs no grant, where the hook acts on it.
    pub(super) last_command_ns: u64,
    /// Launches that wait for a command ahead of them.
    pub(super) launches_behind_commands: usize,
    /// The tracker was woken since its last step. The wake-up may have come before it slept, when no notification reaches it.
    pub(super) tracker_woken: bool,
    /// Until when the tracker sleeps, if it does.
    pub(super) tracker_sleeps_until: Option<u64>,
    /// How long the program would run without a quota, as computed shortly before the end of the grant, in milliseconds.
    pub(super) next_burst_ms: Option<f64>,
    /// When the grant was requested.
    pub(super) requested_ns: u64,
    /// A waiting launch has found that the drain in progress has stalled.
    pub(super) drain_stalled: bool,
    pub(super) burst: PeriodPredictor,
    pub(super) window: PeriodPredictor,
    /// Bursts of this process, if it is latency-critical.
    pub(super) admission: BurstAdmission,
    /// The process is latency-critical, so other clients' deadlines concern it.
    pub(super) follows_deadlines: bool,
    /// Steps and requests of this process, if it is latency-critical.
    pub(super) latency: LatencyMeter,
    /// Launches begun, when a poll last found work finished.
    pub(super) launches_at_poll: u64,
    /// Threads whose launches are postponed because of an earlier deadline.
    pub(super) postponed_threads: usize,
    pub(super) grant: Grant,
    pub(super) streams: StreamSet,
    /// Events behind work of streams whose handles are not used any more, because they were destroyed, or their grant was lost. The tracker
    /// returns them when the GPU has reached them.
    pub(super) orphaned_marks: Vec<Mark>,
    /// The commands that need no grant and that a launch would stand behind.
    pub(super) commands_ahead: CommandsAhead,
    pub(super) accepts_yield: bool,
    /// Overrun of the last grant, reported with the next request.
    pub(super) overuse_ms: f64,
    /// GPU time used since the start.
    pub(super) total_busy_ns: u64,
    pub(super) retry_wait_ns: u64,
    /// Successive polls of an unlimited grant whose result the program reports itself.
    pub(super) needless_polls: u32,
    /// When a wait of the program last showed the end of a burst.
    pub(super) waited_ns: Option<u64>,
    /// When the connection is next checked under an unlimited grant.
    pub(super) next_liveness_ns: u64,
    /// Which time slices best-effort clients should have beside this process.
    pub(super) host_bound: HostBoundTest,
    /// Launches begun, when a wait last ended a burst.
    pub(super) launches_at_wait: u64,
    /// A wait of the host has ended the last burst.
    pub(super) ended_by_wait: bool,
    /// The present or last burst began after one that a wait had ended. Otherwise it may be the rest of a longer one: if the host pauses,
    /// the tracker finds the GPU idle.
    pub(super) begun_after_wait: bool,
    /// Launches begun, at the tracker's last poll.
    pub(super) last_launches: u64,
    /// GPU time of bursts that events do not measure.
    pub(super) gpu_time: GpuTimeEstimate,
    /// When the next burst of a limited grant is to be measured.
    pub(super) next_measure_ns: u64,
    /// Which bursts of an unlimited grant are measured.
    pub(super) sampling: BurstSampling,
    /// When a wait may record the end of a burst again.
    pub(super) next_mark_end_ns: u64,
}

impl State {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            burst: PeriodPredictor::new(BURST_MERGE_MS, settings.quantile),
            window: PeriodPredictor::new(WINDOW_MERGE_MS, settings.quantile),
            accepts_yield: true,
            ..Self::default()
        }
    }

    /// Whether GPU work is known to run.
    pub(super) fn is_busy(&self) -> bool {
        self.burst.running_since().is_some()
    }

    /// Whether the process keeps no grant for work that runs: there is none, or the grant is about to be returned.
    pub(super) fn needs_grant_for_launch(&self) -> bool {
        !self.is_busy() || self.phase == Phase::Draining
    }

    /// Whether the manager is to count this process as active. A thread that waits for the GPU, or polls for completion, may wait for work
    /// that no call reported.
    pub(super) fn is_active(&self) -> bool {
        self.is_busy()
            || self.blocked_threads > 0
            || self.polling
            || self.holds_until_ns.is_some()
            || self.has_commands()
    }

    /// Whether there are commands that need no grant. Under a grant with a deadline they do not count: the process needs no grant for them.
    fn has_commands(&self) -> bool {
        self.grant.is_unlimited() && (self.launches_behind_commands > 0 || self.streams.any_command())
    }

    /// Whether all work of the process is commands that use no multiprocessor, as far as is known. A thread that waits for the GPU then waits
    /// for them.
    pub(super) fn only_waits(&self) -> bool {
        !self.is_busy() && self.holds_until_ns.is_none() && self.has_commands()
    }

    /// How long the program would run without a quota, in milliseconds; 0 if unknown.
    pub(super) fn predict_full_burst(&mut self, now_ns: u64) -> f64 {
        estimate_full_burst(self.burst.predict_merged(now_ns), self.window.predict_merged(now_ns))
    }

    /// Begins a burst. A holder of an unlimited grant never sends a request, so nothing is recorded for one. Keeping records would touch
    /// ten thousand bytes, which after a pause are in no cache.
    pub(super) fn begin_burst(&mut self, now_ns: u64) {
        if self.grant.is_unlimited() {
            self.window.interrupt();
        } else {
            self.window.record_stop(now_ns);
        }
        if self.follows_deadlines {
            self.admission.burst_began(now_ns);
        }
        self.burst.record_start(now_ns);
        self.holds_until_ns = None;
        self.begun_after_wait = std::mem::take(&mut self.ended_by_wait);
        self.grant.bursts += 1;
        self.grant.idle_since_ns = None;
        self.grant.return_at_once = false;
    }

    /// Ends the running burst at `end_ns`. It used the GPU for `measured_ns`, if it was measured.
    pub(super) fn end_burst(&mut self, end_ns: u64, measured_ns: Option<u64>) {
        let Some(begin_ns) = self.burst.running_since() else { return };
        let lasted = end_ns.saturating_sub(begin_ns);
        let busy_ns = match measured_ns.map(|ns| ns.min(lasted)) {
            Some(ns) => {
                self.gpu_time.measured(lasted, ns);
                ns
            }
            None => self.gpu_time.of(lasted),
        };
        if self.grant.is_unlimited() {
            self.burst.interrupt();
        } else {
            self.burst.record_stop(end_ns);
            self.window.record_start(end_ns);
        }
        if self.follows_deadlines {
            self.admission.burst_ended(end_ns);
        }
        self.grant.busy_ns += busy_ns;
        self.total_busy_ns += busy_ns;
        self.grant.idle_since_ns = Some(end_ns);
    }
}
