//! The series of preemptions: how often somebody was to give way, and what came of it.

use super::Level;
use crate::channels::{Cause, ControlFailure};
use prometheus::{IntCounter, Opts, Registry};
use sluice_proto::control;

/// What came of a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempted {
    /// It gave way.
    Success,
    /// It did not in time.
    Timeout,
    /// The driver did not take it off the GPU.
    ContextSaveFailed,
    /// There was no memory or other resource for that.
    InsufficientMemory,
    /// The GPU does not answer.
    GpuHung,
    /// There was nothing that could be taken off, or not then.
    InvalidState,
}

const OUTCOMES: [&str; 6] =
    ["success", "timeout", "context_save_failed", "insufficient_memory", "gpu_hung", "invalid_state"];

/// The levels at which it is known here what came of a preemption: what gates do is known to the process.
const LEVELS: [(Level, &str); 2] = [(Level::Turn, "turn"), (Level::Token, "token")];

/// Counts preemptions by level and outcome.
pub(crate) struct PreemptionMetrics(Vec<(Level, Vec<IntCounter>)>);

impl From<&Result<(), ControlFailure>> for Preempted {
    fn from(stopped: &Result<(), ControlFailure>) -> Self {
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

impl PreemptionMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let by_level = LEVELS.iter().map(|(level, label)| {
            let by_outcome = OUTCOMES.iter().map(|outcome| {
                let opts = Opts::new("sluice_preemptions_total", "Times a process was to give way");
                let opts = opts.const_label("level", *label).const_label("outcome", *outcome);
                let counter = IntCounter::with_opts(opts)?;
                registry.register(Box::new(counter.clone())).map(|()| counter)
            });
            Ok((*level, by_outcome.collect::<prometheus::Result<_>>()?))
        });
        by_level.collect::<prometheus::Result<_>>().map(Self)
    }

    /// All of them, as the node agent hears it.
    pub(crate) fn said(&self) -> Vec<control::Preemptions> {
        let by_level = LEVELS.iter().zip(&self.0).flat_map(|((_, level), (_, counters))| {
            OUTCOMES.iter().zip(counters).map(|(outcome, counter)| control::Preemptions {
                level: (*level).to_owned(),
                outcome: (*outcome).to_owned(),
                count: counter.get(),
            })
        });
        by_level.collect()
    }

    /// Somebody was to give way at this level.
    pub(crate) fn count(&self, level: Level, outcome: Preempted) {
        let of_level = self.0.iter().find(|(other, _)| *other == level);
        if let Some(counter) = of_level.and_then(|(_, counters)| counters.get(outcome as usize)) {
            counter.inc();
        }
    }
}
