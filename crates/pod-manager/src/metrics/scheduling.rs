//! The series of channel-group scheduling and of preemptions.

use super::Series;
use crate::channel_groups::{Cause, ControlFailure};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Result};
use sluice_core::channel_groups::{ControlOp, ControlOutcome};
use sluice_proto::control;
use std::collections::HashMap;
use std::time::Duration;

/// Bounds of the histogram of controls, seconds.
const CONTROL_BUCKETS: [f64; 10] =
    [0.000_1, 0.000_2, 0.000_3, 0.000_5, 0.000_75, 0.001, 0.002, 0.005, 0.05, 1.0];

/// What enforces the share of a process, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnforcementLevel {
    /// Its channel groups are controlled. Those of a latency-critical process have time slices only.
    Full,
    /// Grants only.
    Token,
}

/// In the order of [`EnforcementLevel`].
const LEVELS: [&str; 2] = ["turn", "token"];

/// Counts controls, quanta, and processes by enforcement level.
pub(crate) struct ChannelGroupMetrics {
    /// By control, then outcome.
    controls: [[IntCounter; 3]; 3],
    seconds: [Histogram; 3],
    /// 1 while a control is being made.
    pub(crate) in_flight: IntGauge,
    pub(crate) quanta: IntCounter,
    pub(crate) forced: IntCounter,
    pub(crate) given_up: IntCounter,
    pub(crate) on_probation: IntGauge,
    pub(crate) default_slices: IntGauge,
    pub(crate) descriptors_refused: IntCounter,
    pub(crate) announcements_waiting: IntGauge,
    pub(crate) announcements_refused: IntCounter,
    levels: [IntGauge; 2],
}

impl ChannelGroupMetrics {
    pub(super) fn new(series: &mut Series) -> Result<Self> {
        let controls = ("sluice_controls_total", "Controls of channel groups, by control and outcome");
        let seconds =
            series.opts("sluice_control_seconds", "Time that controls of channel groups took, seconds");
        let seconds = HistogramOpts::from(seconds).buckets(CONTROL_BUCKETS.to_vec());
        let levels = series.opts("sluice_level", "Processes by the level that enforces their share");
        Ok(Self {
            controls: series.outcomes(controls, ("control", ControlOp::LABELS), ControlOutcome::LABELS)?,
            seconds: series.by_value(HistogramVec::new(seconds, &["control"]), ControlOp::LABELS)?,
            in_flight: series.gauge("sluice_controls_in_flight", "1 while a control is being made")?,
            quanta: series.counter("sluice_turns_total", "Quanta given to hardware-scheduled processes")?,
            forced: series.counter(
                "sluice_hand_overs_forced_total",
                "Times that the hand-off window opened only because the longest wait had passed",
            )?,
            given_up: series.counter(
                "sluice_steering_given_up_total",
                "Times that a process became token-scheduled for a while because a control of it failed",
            )?,
            on_probation: series.gauge(
                "sluice_processes_on_probation",
                "Processes that are token-scheduled because a control of them failed, until one succeeds",
            )?,
            default_slices: series.gauge(
                "sluice_default_slices",
                "1 while best-effort clients have the driver's default time slices beside latency-critical ones",
            )?,
            descriptors_refused: series.counter(
                "sluice_control_descriptors_refused_total",
                "Descriptors sent by processes that are no control descriptors",
            )?,
            announcements_waiting: series.gauge(
                "sluice_announcements_waiting",
                "Announcements of contexts that are postponed: too early, or not checked yet",
            )?,
            announcements_refused: series.counter(
                "sluice_announcements_refused_total",
                "Announcements of contexts above the limit of a client, or of another process's contexts",
            )?,
            levels: series.by_value(IntGaugeVec::new(levels, &["level"]), LEVELS)?,
        })
    }

    /// Counts a control.
    pub(crate) fn count(&self, op: ControlOp, outcome: ControlOutcome, took: Duration) {
        self.controls[op.index()][outcome.index()].inc();
        self.seconds[op.index()].observe(took.as_secs_f64());
    }

    /// All counts, for the node agent; the caller adds those of preemptions.
    pub(crate) fn to_proto(&self) -> control::Steering {
        let controls = ControlOp::LABELS.iter().zip(&self.controls).flat_map(|(control, by_outcome)| {
            ControlOutcome::LABELS.iter().zip(by_outcome).map(|(outcome, counter)| control::Controls {
                control: (*control).to_owned(),
                outcome: (*outcome).to_owned(),
                count: counter.get(),
            })
        });
        let levels = LEVELS.iter().zip(&self.levels);
        control::Steering {
            turns: self.quanta.get(),
            hand_overs_forced: self.forced.get(),
            given_up: self.given_up.get(),
            descriptors_refused: self.descriptors_refused.get(),
            announcements_refused: self.announcements_refused.get(),
            preemptions: Vec::new(),
            preemption_times: HashMap::new(),
            hand_off_times: HashMap::new(),
            controls: controls.collect(),
            levels: levels
                .map(|(level, gauge)| ((*level).to_owned(), u32::try_from(gauge.get()).unwrap_or(0)))
                .collect(),
        }
    }

    /// Counts the processes at each level.
    pub(crate) fn set_levels(&self, levels: impl Iterator<Item = EnforcementLevel>) {
        let mut counts = [0; LEVELS.len()];
        levels.for_each(|level| counts[level as usize] += 1);
        for (gauge, count) in self.levels.iter().zip(counts) {
            gauge.set(count);
        }
    }
}

/// The outcome of a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempted {
    /// The process left the GPU.
    Success,
    /// It did not leave in time.
    Timeout,
    /// The driver did not disable its groups.
    ContextSaveFailed,
    /// The driver had no memory or other resource for it.
    InsufficientMemory,
    /// The GPU does not answer.
    GpuHung,
    /// There was no group to disable, or it was not in a state for it.
    InvalidState,
}

/// In the order of [`Preempted`].
const PREEMPTION_OUTCOMES: [&str; 6] =
    ["success", "timeout", "context_save_failed", "insufficient_memory", "gpu_hung", "invalid_state"];

/// In the order of [`EnforcementLevel`].
pub(super) const PREEMPTION_LEVELS: [&str; 2] = ["turn", "token"];

impl From<&std::result::Result<(), ControlFailure>> for Preempted {
    fn from(stopped: &std::result::Result<(), ControlFailure>) -> Self {
        match stopped {
            Ok(()) => Self::Success,
            Err(ControlFailure::Gone | ControlFailure::Failed(Cause::InvalidState, _)) => Self::InvalidState,
            Err(ControlFailure::Failed(Cause::Timeout, _)) => Self::Timeout,
            Err(ControlFailure::Failed(Cause::Refused, _)) => Self::ContextSaveFailed,
            Err(ControlFailure::Failed(Cause::NoMemory, _)) => Self::InsufficientMemory,
            Err(ControlFailure::Failed(Cause::GpuHung, _)) => Self::GpuHung,
        }
    }
}

/// Counts preemptions, how often a process was to leave the GPU, by level and outcome.
pub(crate) struct PreemptionMetrics {
    hardware: [IntCounter; 6],
    token: [IntCounter; 6],
}

impl PreemptionMetrics {
    pub(super) fn new(series: &mut Series) -> Result<Self> {
        let name = ("sluice_preemptions_total", "Preemptions of processes, by level and outcome");
        let [hardware, token] = series.outcomes(name, ("level", PREEMPTION_LEVELS), PREEMPTION_OUTCOMES)?;
        Ok(Self { hardware, token })
    }

    /// All counts, for the node agent.
    pub(crate) fn to_proto(&self) -> Vec<control::Preemptions> {
        let by_level =
            PREEMPTION_LEVELS.iter().zip([&self.hardware, &self.token]).flat_map(|(level, counters)| {
                PREEMPTION_OUTCOMES.iter().zip(counters).map(|(outcome, counter)| control::Preemptions {
                    level: (*level).to_owned(),
                    outcome: (*outcome).to_owned(),
                    count: counter.get(),
                })
            });
        by_level.collect()
    }

    /// Counts a preemption of a hardware-scheduled process.
    pub(crate) fn count_hardware(&self, outcome: Preempted) {
        self.hardware[outcome as usize].inc();
    }

    /// Counts a preemption of a token-scheduled process.
    pub(crate) fn count_token(&self, outcome: Preempted) {
        self.token[outcome as usize].inc();
    }
}
