//! The series of channel-group scheduling.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};
use sluice_core::channel_groups::{ControlOp, ControlOutcome};
use sluice_proto::control;
use std::collections::HashMap;
use std::time::Duration;

/// Bounds of the histogram of controls, seconds.
const CONTROL_BUCKETS: [f64; 10] =
    [0.000_1, 0.000_2, 0.000_3, 0.000_5, 0.000_75, 0.001, 0.002, 0.005, 0.05, 1.0];

const OUTCOMES: [(ControlOutcome, &str); 3] =
    [(ControlOutcome::Done, "done"), (ControlOutcome::Failed, "failed"), (ControlOutcome::Gone, "gone")];

/// What enforces the share of a process, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnforcementLevel {
    /// Its channel groups are controlled. Those of a latency-critical process have time slices only.
    Full,
    /// Its stream gates hold back work that has not begun on the GPU.
    Device,
    /// Its stream gates hold back work that has not been submitted.
    Host,
    /// Grants only.
    Token,
}

const LEVELS: [&str; 4] = ["turn", "device", "host", "token"];

/// Counts controls, quanta, and processes by enforcement level.
pub(crate) struct ChannelGroupMetrics {
    /// By control, then outcome.
    controls: Vec<Vec<IntCounter>>,
    seconds: Vec<Histogram>,
    /// 1 while a control is being made.
    pub(crate) in_flight: IntGauge,
    pub(crate) quanta: IntCounter,
    pub(crate) forced: IntCounter,
    pub(crate) given_up: IntCounter,
    pub(crate) descriptors_refused: IntCounter,
    pub(crate) announcements_waiting: IntGauge,
    pub(crate) announcements_refused: IntCounter,
    levels: Vec<IntGauge>,
}

impl ChannelGroupMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |opts: Opts| {
            let counter = IntCounter::with_opts(opts)?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let controls = ControlOp::LABELS.iter().map(|control| {
            let by_outcome = OUTCOMES.iter().map(|(_, outcome)| {
                let opts =
                    Opts::new("sluice_controls_total", "Controls of channel groups, by control and outcome");
                counter(opts.const_label("control", *control).const_label("outcome", *outcome))
            });
            by_outcome.collect::<prometheus::Result<Vec<_>>>()
        });
        let seconds = ControlOp::LABELS.iter().map(|control| {
            let opts = HistogramOpts::new(
                "sluice_control_seconds",
                "Time that controls of channel groups took, seconds",
            )
            .const_label("control", *control)
            .buckets(CONTROL_BUCKETS.to_vec());
            let histogram = Histogram::with_opts(opts)?;
            registry.register(Box::new(histogram.clone())).map(|()| histogram)
        });
        let levels = LEVELS.iter().map(|level| {
            let opts = Opts::new("sluice_level", "Processes by the level that enforces their share");
            let gauge = IntGauge::with_opts(opts.const_label("level", *level))?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        });
        let announcements_waiting = IntGauge::new(
            "sluice_announcements_waiting",
            "Announcements of contexts that are postponed: too early, or not checked yet",
        )?;
        registry.register(Box::new(announcements_waiting.clone()))?;
        let in_flight = IntGauge::new("sluice_controls_in_flight", "1 while a control is being made")?;
        registry.register(Box::new(in_flight.clone()))?;
        Ok(Self {
            in_flight,
            announcements_waiting,
            controls: controls.collect::<prometheus::Result<_>>()?,
            seconds: seconds.collect::<prometheus::Result<_>>()?,
            quanta: counter(Opts::new("sluice_turns_total", "Quanta given to hardware-scheduled processes"))?,
            forced: counter(Opts::new(
                "sluice_hand_overs_forced_total",
                "Hand-offs made while a latency-critical process was busy or about to be",
            ))?,
            given_up: counter(Opts::new(
                "sluice_steering_given_up_total",
                "Processes that became token-scheduled because a control of their client failed",
            ))?,
            descriptors_refused: counter(Opts::new(
                "sluice_control_descriptors_refused_total",
                "Descriptors sent by processes that are no control descriptors",
            ))?,
            announcements_refused: counter(Opts::new(
                "sluice_announcements_refused_total",
                "Announcements of contexts above the limit of a client, or of another process's contexts",
            ))?,
            levels: levels.collect::<prometheus::Result<_>>()?,
        })
    }

    /// Counts a control.
    pub(crate) fn count(&self, op: ControlOp, outcome: ControlOutcome, took: Duration) {
        let outcome = OUTCOMES.iter().position(|(other, _)| *other == outcome);
        if let Some(counter) = self.controls.get(op.index()).zip(outcome).and_then(|(all, nth)| all.get(nth))
        {
            counter.inc();
        }
        if let Some(seconds) = self.seconds.get(op.index()) {
            seconds.observe(took.as_secs_f64());
        }
    }

    /// All counts, for the node agent; the caller adds those of gates and preemptions.
    pub(crate) fn to_proto(&self) -> control::Steering {
        let controls = ControlOp::LABELS.iter().zip(&self.controls).flat_map(|(control, by_outcome)| {
            OUTCOMES.iter().zip(by_outcome).map(|((_, outcome), counter)| control::Controls {
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
            gate_changes: HashMap::new(),
            preemptions: Vec::new(),
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
