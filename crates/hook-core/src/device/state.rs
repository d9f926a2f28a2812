//! What a device knows, behind one lock that is never held across a wait, a driver call or an answer from the manager.

use crate::hold_kernel;
use crate::period_predictor::{BURST_MERGE_MS, PeriodPredictor, Quantile, WINDOW_MERGE_MS};
use crate::platform::Mark;
use crate::streams::StreamSet;

/// How often a burst is measured by events, besides the first of each grant, and how often a wait marks the end of one.
/// An event costs some microseconds, so this keeps them near a thousandth of the time.
pub(super) const MEASURE_INTERVAL_NS: u64 = 10_000_000;

/// How much the newest measurement counts against all before.
const NEWEST: f64 = 0.25;

/// Settings of a device.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Idle for this long, the token is given back, in nanoseconds.
    pub idle_ns: u64,
    /// What the predictors answer.
    pub quantile: Quantile,
    /// Hold launches without a manager, until the manager's page says otherwise.
    pub fail_closed: bool,
    /// How long a launch waits for the drain of the last grant, which may be waiting for that very launch.
    pub stall_ns: u64,
    /// How a latency-critical process gets the GPU early.
    pub hold_kernels: hold_kernel::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle_ns: 500_000,
            quantile: Quantile::P90,
            fail_closed: false,
            stall_ns: 5_000_000_000,
            hold_kernels: hold_kernel::Settings::default(),
        }
    }
}

/// Where the device stands with its manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not connected yet.
    Detached,
    /// Attached, and no grant is held or asked for.
    Closed,
    /// A grant was asked for; the answer has not been read.
    Asking,
    /// A grant is held. Whether its deadline has passed is the page's to say.
    Open,
    /// The grant is over and its work is finishing.
    Draining,
    /// The manager went away; the tracker tries again at the time given.
    Lost {
        /// When to connect again.
        retry_ns: u64,
    },
}

/// An event before the first launch of a burst.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) mark: Mark,
    /// The host's time of it.
    pub(super) at_ns: u64,
    /// Which burst of the grant.
    pub(super) burst: u64,
}

/// The grant held, or the last one.
#[derive(Debug, Default)]
pub(super) struct Grant {
    /// Counts grants of this process.
    pub(super) number: u64,
    /// `u64::MAX` for a standing grant.
    pub(super) deadline_ns: u64,
    pub(super) quota_ms: f64,
    /// GPU time of the bursts that ended within the grant.
    pub(super) busy_ns: u64,
    /// Bursts begun within the grant.
    pub(super) bursts: u64,
    /// The begin of a burst that events measure.
    pub(super) measured: Option<Measured>,
    /// Since when nothing runs; the grant's begin if nothing has.
    pub(super) idle_since_ns: Option<u64>,
    /// Whether a typical pause is long enough to give the token back at once.
    pub(super) return_at_once: bool,
}

impl Grant {
    /// The begin of the last burst, if that is the one being measured.
    pub(super) fn current_measurement(&self) -> Option<Measured> {
        self.measured.filter(|measured| measured.burst == self.bursts)
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.deadline_ns == u64::MAX
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// A thread waits for the manager's answer.
    pub(super) is_answer_awaited: bool,
    /// Threads inside calls that wait for the GPU.
    pub(super) blocked_threads: usize,
    /// Since when the tracker has met some at each of its looks.
    pub(super) blocked_since_ns: Option<u64>,
    /// The program asks again and again whether something is done.
    pub(super) polling: bool,
    /// What the manager was told: there is work.
    pub(super) reported_active: bool,
    /// Threads that wait to launch.
    pub(super) waiting_launches: usize,
    /// The tracker was called since it last looked: it may have been on its way to sleep, where no call reaches it.
    pub(super) tracker_woken: bool,
    /// The drain under way has been given up as stalled by a waiting launch.
    pub(super) drain_stalled: bool,
    pub(super) burst: PeriodPredictor,
    pub(super) window: PeriodPredictor,
    pub(super) grant: Grant,
    pub(super) streams: StreamSet,
    /// Marks recorded on streams that were destroyed with work on them.
    pub(super) orphaned_marks: Vec<Mark>,
    pub(super) accepts_yield: bool,
    /// Overrun of the last grant, to be told with the next question.
    pub(super) overuse_ms: f64,
    /// GPU time used since the start.
    pub(super) total_busy_ns: u64,
    pub(super) retry_wait_ns: u64,
    /// Looks at a standing grant in a row that found nothing to do.
    pub(super) idle_polls: u32,
    /// When the connection of a standing grant is looked at again.
    pub(super) next_liveness_ns: u64,
    /// Launches seen by the tracker's last look.
    pub(super) last_launches: u64,
    /// GPU time of a burst in proportion to its time on the host, which is longer by what the host takes to notice the
    /// end: from the bursts measured, for those not measured.
    pub(super) gpu_fraction: f64,
    /// When the next burst is to be measured.
    pub(super) next_measure_ns: u64,
    /// When a wait is to mark the end of a burst again.
    pub(super) next_mark_end_ns: u64,
}

impl State {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            phase: Phase::Detached,
            is_answer_awaited: false,
            blocked_threads: 0,
            blocked_since_ns: None,
            polling: false,
            reported_active: false,
            waiting_launches: 0,
            tracker_woken: false,
            drain_stalled: false,
            burst: PeriodPredictor::new(BURST_MERGE_MS, settings.quantile),
            window: PeriodPredictor::new(WINDOW_MERGE_MS, settings.quantile),
            grant: Grant::default(),
            streams: StreamSet::default(),
            orphaned_marks: Vec::new(),
            accepts_yield: true,
            overuse_ms: 0.0,
            total_busy_ns: 0,
            retry_wait_ns: 0,
            idle_polls: 0,
            next_liveness_ns: 0,
            last_launches: 0,
            gpu_fraction: 1.0,
            next_measure_ns: 0,
            next_mark_end_ns: 0,
        }
    }

    /// Whether GPU work is running, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.burst.running_since().is_some()
    }

    /// Whether the manager is to take this process for one that has something to do: a thread that waits for the GPU, or asks
    /// whether it is done, may wait for work that no call has told of.
    pub(super) fn is_active(&self) -> bool {
        self.is_busy() || self.blocked_threads > 0 || self.polling
    }

    /// A burst begins. Who holds a standing grant never asks, so nothing is learned for a question: records are kept in some ten
    /// thousand bytes, and after a pause none of them is near.
    pub(super) fn begin_burst(&mut self, now_ns: u64) {
        if self.grant.is_unlimited() {
            self.window.interrupt();
        } else {
            self.window.record_stop(now_ns);
        }
        self.burst.record_start(now_ns);
        self.grant.bursts += 1;
        self.grant.idle_since_ns = None;
        self.grant.return_at_once = false;
    }

    /// The running burst ended at `end_ns`, having used the GPU for `measured_ns`, if that was measured.
    pub(super) fn end_burst(&mut self, end_ns: u64, measured_ns: Option<u64>) {
        let Some(begin_ns) = self.burst.running_since() else { return };
        let lasted = end_ns.saturating_sub(begin_ns);
        let busy_ns = match measured_ns.map(|ns| ns.min(lasted)) {
            Some(ns) => {
                let part = ns as f64 / lasted.max(1) as f64;
                self.gpu_fraction += NEWEST * (part - self.gpu_fraction);
                ns
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u64")]
            None => (lasted as f64 * self.gpu_fraction) as u64,
        };
        if self.grant.is_unlimited() {
            self.burst.interrupt();
        } else {
            self.burst.record_stop(end_ns);
            self.window.record_start(end_ns);
        }
        self.grant.busy_ns += busy_ns;
        self.total_busy_ns += busy_ns;
        self.grant.idle_since_ns = Some(end_ns);
    }
}
