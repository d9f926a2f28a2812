//! The clock of a stepped node's GPU.

use crate::MS;
use sluice_test_bed::SimulatedGpu;

/// Advances the clock of one GPU.
#[derive(Debug, Clone)]
pub(crate) struct SteppedClock(SimulatedGpu);

impl SteppedClock {
    /// The GPU's time that passes between two polls of a wait.
    const STEP_NS: u64 = MS;

    pub(crate) fn of(gpu: SimulatedGpu) -> Self {
        Self(gpu)
    }

    /// Between two polls.
    pub(crate) fn step(&self) {
        self.advance(Self::STEP_NS);
    }

    pub(crate) fn advance(&self, ns: u64) {
        self.0.advance(ns).unwrap_or_else(|error| panic!("{error:#}"));
    }
}
