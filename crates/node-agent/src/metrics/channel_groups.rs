//! Series about channel-group scheduling by the pod-managers.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use sluice_proto::control::Steering;

use super::families::take;

/// Series of each GPU.
pub(super) struct Series {
    quanta: IntCounterVec,
    forced: IntCounterVec,
    given_up: IntCounterVec,
    descriptors_refused: IntCounterVec,
    announcements_refused: IntCounterVec,
    controls: IntCounterVec,
    gate_changes: IntCounterVec,
    preemptions: IntCounterVec,
    level: IntGaugeVec,
}

impl Series {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let of_gpu = |name: &str, help: &str, more: &[&'static str]| {
            let labels = [&["gpu", "node"], more].concat();
            take(registry, IntCounterVec::new(Opts::new(name, help), &labels))
        };
        let level =
            Opts::new("sluice_level", "Attached processes, by the mechanism that makes them yield the GPU");
        Ok(Self {
            quanta: of_gpu(
                "sluice_turns_total",
                "Quanta enforced by enabling and disabling channel groups",
                &[],
            )?,
            forced: of_gpu(
                "sluice_hand_overs_forced_total",
                "Hand-offs of the GPU while a latency-critical process was busy, or about to be",
                &[],
            )?,
            given_up: of_gpu(
                "sluice_steering_given_up_total",
                "Processes scheduled by token because a driver control of their pod failed",
                &[],
            )?,
            descriptors_refused: of_gpu(
                "sluice_control_descriptors_refused_total",
                "Descriptors announced by pods' processes that are no control descriptors",
                &[],
            )?,
            announcements_refused: of_gpu(
                "sluice_announcements_refused_total",
                "Announcements of contexts that were ignored because their pod made too many",
                &[],
            )?,
            gate_changes: of_gpu(
                "sluice_gate_changes_total",
                "Changes of the stream gates of best-effort processes",
                &["to"],
            )?,
            preemptions: of_gpu(
                "sluice_preemptions_total",
                "Pre-emptions of a process, by level and outcome",
                &["level", "outcome"],
            )?,
            controls: of_gpu(
                "sluice_controls_total",
                "Driver controls of channel groups, by kind and outcome",
                &["control", "outcome"],
            )?,
            level: take(registry, IntGaugeVec::new(level, &["gpu", "node", "level"]))?,
        })
    }

    /// Adds the counts that the manager of a GPU reported.
    pub(super) fn add(&self, own: [&str; 2], reported: &Steering) {
        self.quanta.with_label_values(&own).inc_by(reported.turns);
        self.forced.with_label_values(&own).inc_by(reported.hand_overs_forced);
        self.given_up.with_label_values(&own).inc_by(reported.given_up);
        self.descriptors_refused.with_label_values(&own).inc_by(reported.descriptors_refused);
        self.announcements_refused.with_label_values(&own).inc_by(reported.announcements_refused);
        let [gpu, node] = own;
        for control in &reported.controls {
            self.controls
                .with_label_values(&[gpu, node, &control.control, &control.outcome])
                .inc_by(control.count);
        }
        for preemption in &reported.preemptions {
            self.preemptions
                .with_label_values(&[gpu, node, &preemption.level, &preemption.outcome])
                .inc_by(preemption.count);
        }
        for (to, changes) in &reported.gate_changes {
            self.gate_changes.with_label_values(&[gpu, node, to]).inc_by(*changes);
        }
        for (level, processes) in &reported.levels {
            self.level.with_label_values(&[gpu, node, level]).set(i64::from(*processes));
        }
    }
}
