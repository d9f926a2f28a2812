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

/// Times of preemptions: until the process has left the GPU; and of hand-offs: until the next one has the GPU.
pub(crate) struct SwitchTimes {
    preemptions: [Histogram; 2],
    hand_offs: [Histogram; 2],
    /// Since when the GPU is being passed on, by level.
    since_ns: [Cell<Option<u64>>; 2],
}

/// What takes the GPU from one process and gives it to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchLevel {
    /// Controls of channel groups.
    Hardware,
    /// Grants.
    Token,
}

impl SwitchTimes {
    pub(super) fn new(series: &mut Series) -> Result<Self> {
        let preemptions = "Time until a preempted process had left the GPU, seconds: of the control, or from the end of its grant until its work had drained";
        let hand_offs = "Time of a hand-off, seconds: from the first control that disables a group to the end of the next one that enables one, or from the end of a grant to the next grant";
        let mut histograms = |name, help| {
            let opts = HistogramOpts::from(series.opts(name, help)).buckets(BUCKETS.to_vec());
            series.by_value(HistogramVec::new(opts, &["level"]), PREEMPTION_LEVELS)
        };
        Ok(Self {
            preemptions: histograms("sluice_preemption_seconds", preemptions)?,
            hand_offs: histograms("sluice_hand_off_seconds", hand_offs)?,
            since_ns: Default::default(),
        })
    }

    /// Counts a preemption that took so long.
    pub(crate) fn preempted(&self, level: SwitchLevel, took: Duration) {
        self.preemptions[level as usize].observe(took.as_secs_f64());
    }

    /// The GPU is passed on since `since_ns`, unless it was before.
    pub(crate) fn hand_off_begins(&self, level: SwitchLevel, since_ns: u64) {
        let since = &self.since_ns[level as usize];
        since.set(since.get().or(Some(since_ns)));
    }

    /// The next process has the GPU. Counts a hand-off, if one had begun.
    pub(crate) fn hand_off_ends(&self, level: SwitchLevel, now_ns: u64) {
        if let Some(since_ns) = self.since_ns[level as usize].take() {
            let took = Duration::from_nanos(now_ns.saturating_sub(since_ns));
            self.hand_offs[level as usize].observe(took.as_secs_f64());
        }
    }

    /// No process follows: what began was no hand-off.
    pub(crate) fn no_hand_off(&self, level: SwitchLevel) {
        self.since_ns[level as usize].set(None);
    }

    /// The times of preemptions and of hand-offs by level, for the node agent.
    pub(crate) fn to_proto(&self) -> [HashMap<String, control::Latencies>; 2] {
        [&self.preemptions, &self.hand_offs].map(|histograms| {
            let by_level = PREEMPTION_LEVELS.iter().zip(histograms);
            by_level.map(|(level, histogram)| ((*level).to_owned(), histogram_to_proto(histogram))).collect()
        })
    }
}
