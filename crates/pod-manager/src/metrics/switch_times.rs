//! How long preemptions and hand-offs take, by level.

use super::scheduling::PREEMPTION_LEVELS;
use super::{Series, histogram_to_proto};
use prometheus::{Histogram, HistogramOpts, HistogramVec, Result};
use sluice_proto::control;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

/// Bounds, seconds: a control takes 0.3 to 0.9 ms, a hand-off two of them, and work in flight up to some milliseconds.
const BUCKETS: [f64; 18] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_3, 0.000_5, 0.000_75, 0.001, 0.001_5, 0.002, 0.003,
    0.005, 0.01, 0.02, 0.05, 0.1, 1.0,
];

/// Times of preemptions: until the process has left the GPU. And of hand-offs by channel groups: until the next process has the GPU. Between
/// token-scheduled processes the preemption is the whole hand-off: the next grant begins in the same round of the event loop.
pub(crate) struct SwitchTimes {
    preemptions: [Histogram; 2],
    hand_offs: [Histogram; 1],
    /// Since when the GPU is being passed on.
    since_ns: Cell<Option<u64>>,
}

/// What takes the GPU from a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchLevel {
    /// Controls of channel groups.
    Hardware,
    /// Grants.
    Token,
}

impl SwitchTimes {
    pub(super) fn new(series: &mut Series) -> Result<Self> {
        let opts = |series: &Series, name, help| {
            HistogramOpts::from(series.opts(name, help)).buckets(BUCKETS.to_vec())
        };
        let help = "Time until a preempted process had left the GPU, seconds: of the control, or from the end of its grant until its work had drained";
        let preemptions = opts(series, "sluice_preemption_seconds", help);
        let help = "Time of a hand-off, seconds: from the first control that disables a group to the end of the next one that enables one";
        let hand_offs = opts(series, "sluice_hand_off_seconds", help);
        Ok(Self {
            preemptions: series.by_value(HistogramVec::new(preemptions, &["level"]), PREEMPTION_LEVELS)?,
            hand_offs: series.by_value(HistogramVec::new(hand_offs, &["level"]), ["turn"])?,
            since_ns: Cell::new(None),
        })
    }

    /// Counts a preemption that took so long.
    pub(crate) fn preempted(&self, level: SwitchLevel, took: Duration) {
        self.preemptions[level as usize].observe(took.as_secs_f64());
    }

    /// The GPU is passed on since `since_ns`, unless it was before.
    pub(crate) fn hand_off_begins(&self, since_ns: u64) {
        self.since_ns.set(self.since_ns.get().or(Some(since_ns)));
    }

    /// The next process has the GPU. Counts a hand-off, if one had begun.
    pub(crate) fn hand_off_ends(&self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            let took = Duration::from_nanos(now_ns.saturating_sub(since_ns));
            self.hand_offs.iter().for_each(|hand_offs| hand_offs.observe(took.as_secs_f64()));
        }
    }

    /// No process follows: what began was no hand-off.
    pub(crate) fn no_hand_off(&self) {
        self.since_ns.set(None);
    }

    /// The times of preemptions and of hand-offs by level, for the node agent.
    pub(crate) fn to_proto(&self) -> [HashMap<String, control::Latencies>; 2] {
        [&self.preemptions[..], &self.hand_offs].map(|histograms| {
            let by_level = PREEMPTION_LEVELS.iter().zip(histograms);
            by_level.map(|(level, histogram)| ((*level).to_owned(), histogram_to_proto(histogram))).collect()
        })
    }
}
