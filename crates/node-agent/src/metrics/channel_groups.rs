//! Series about channel-group scheduling by the pod-managers.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use sluice_proto::control::Steering;

use super::families::take;

/// Series of each GPU.
pub(super) struct Series {
    turns: IntCounterVec,
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
        let level = Opts::new("sluice_level", "Processes by what makes them give way");
        Ok(Self {
            turns: of_gpu("sluice_turns_total", "Turns kept by the GPU's own controls", &[])?,
            forced: of_gpu(
                "sluice_hand_overs_forced_total",
                "Hand-overs made while a latency-critical process was busy, or about to be",
                &[],
            )?,
            given_up: of_gpu(
                "sluice_steering_given_up_total",
                "Processes that take turns by token because a control of their pod failed",
                &[],
            )?,
            descriptors_refused: of_gpu(
                "sluice_control_descriptors_refused_total",
                "Descriptors sent by pods' processes that lead to no driver",
                &[],
            )?,
            announcements_refused: of_gpu(
                "sluice_announcements_refused_total",
                "Announcements of contexts not looked at, for their pod had made too many",
                &[],
            )?,
            gate_changes: of_gpu(
                "sluice_gate_changes_total",
                "Changes of the gates of best-effort processes",
                &["to"],
            )?,
            preemptions: of_gpu(
                "sluice_preemptions_total",
                "Times a process was to give way",
                &["level", "outcome"],
            )?,
            controls: of_gpu("sluice_controls_total", "Controls of channel groups", &["control", "outcome"])?,
            level: take(registry, IntGaugeVec::new(level, &["gpu", "node", "level"]))?,
        })
    }

    /// Adds the counts that the manager of a GPU reported.
    pub(super) fn add(&self, own: [&str; 2], said: &Steering) {
        self.turns.with_label_values(&own).inc_by(said.turns);
        self.forced.with_label_values(&own).inc_by(said.hand_overs_forced);
        self.given_up.with_label_values(&own).inc_by(said.given_up);
        self.descriptors_refused.with_label_values(&own).inc_by(said.descriptors_refused);
        self.announcements_refused.with_label_values(&own).inc_by(said.announcements_refused);
        let [gpu, node] = own;
        for made in &said.controls {
            self.controls.with_label_values(&[gpu, node, &made.control, &made.outcome]).inc_by(made.count);
        }
        for one in &said.preemptions {
            self.preemptions.with_label_values(&[gpu, node, &one.level, &one.outcome]).inc_by(one.count);
        }
        for (to, changes) in &said.gate_changes {
            self.gate_changes.with_label_values(&[gpu, node, to]).inc_by(*changes);
        }
        for (level, processes) in &said.levels {
            self.level.with_label_values(&[gpu, node, level]).set(i64::from(*processes));
        }
    }
}
