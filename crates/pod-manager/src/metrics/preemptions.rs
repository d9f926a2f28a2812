//! The series of preemptions: how often a process was to leave the GPU, and the outcome.

use super::EnforcementLevel;
use crate::channel_groups::{Cause, ControlFailure};
use prometheus::{IntCounter, Opts, Registry};
use sluice_proto::control;

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

const OUTCOMES: [&str; 6] =
    ["success", "timeout", "context_save_failed", "insufficient_memory", "gpu_hung", "invalid_state"];

/// The levels whose outcomes the manager knows. The outcome of stream gates is known to the process only.
const LEVELS: [(EnforcementLevel, &str); 2] =
    [(EnforcementLevel::Full, "turn"), (EnforcementLevel::Token, "token")];

/// Counts preemptions by level and outcome.
pub(crate) struct PreemptionMetrics(Vec<(EnforcementLevel, Vec<IntCounter>)>);

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
                let opts =
                    Opts::new("sluice_preemptions_total", "Preemptions of processes, by level and outcome");
                let opts = opts.const_label("level", *label).const_label("outcome", *outcome);
                let counter = IntCounter::with_opts(opts)?;
                registry.register(Box::new(counter.clone())).map(|()| counter)
            });
            Ok((*level, by_outcome.collect::<prometheus::Result<_>>()?))
        });
        by_level.collect::<prometheus::Result<_>>().map(Self)
    }

    /// All counts, for the node agent.
    pub(crate) fn to_proto(&self) -> Vec<control::Preemptions> {
        let by_level = LEVELS.iter().zip(&self.0).flat_map(|((_, level), (_, counters))| {
            OUTCOMES.iter().zip(counters).map(|(outcome, counter)| control::Preemptions {
                level: (*level).to_owned(),
                outcome: (*outcome).to_owned(),
                count: counter.get(),
            })
        });
        by_level.collect()
    }

    /// Counts a preemption at this level.
    pub(crate) fn count(&self, level: EnforcementLevel, outcome: Preempted) {
        let of_level = self.0.iter().find(|(other, _)| *other == level);
        if let Some(counter) = of_level.and_then(|(_, counters)| counters.get(outcome as usize)) {
            counter.inc();
        }
    }
}
