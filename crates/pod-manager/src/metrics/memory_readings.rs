//! Counts of the readings of the memory of processes.

use super::Series;
use prometheus::{IntCounter, IntCounterVec};
use std::collections::HashMap;

/// What became of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingOutcome {
    /// The driver reported the memory of every process.
    Complete,
    /// The driver did not report the memory of some process. Its client keeps its last overhead.
    Unavailable,
    /// The driver did not answer, or there is none. All clients keep their last overhead.
    Failed,
}

impl ReadingOutcome {
    const LABELS: [&str; 3] = ["complete", "unavailable", "failed"];
}

/// Counters by outcome.
pub(crate) struct MemoryReadings([IntCounter; ReadingOutcome::LABELS.len()]);

impl MemoryReadings {
    pub(super) fn new(series: &mut Series) -> prometheus::Result<Self> {
        let help = "Readings of the memory of processes that the driver reports, by outcome";
        let family = IntCounterVec::new(series.opts("sluice_memory_readings_total", help), &["outcome"]);
        series.by_value(family, ReadingOutcome::LABELS).map(Self)
    }

    pub(crate) fn count(&self, outcome: ReadingOutcome) {
        self.0[outcome as usize].inc();
    }

    /// The counts so far, for the node agent.
    pub(crate) fn by_label(&self) -> HashMap<String, u64> {
        let counts = ReadingOutcome::LABELS.iter().zip(&self.0);
        counts.map(|(label, counter)| ((*label).to_owned(), counter.get())).collect()
    }
}
