//! The series of the stream gates.

use prometheus::{IntCounter, IntGauge, Opts, Registry};
use sluice_core::stream_gates::GateState;
use std::collections::HashMap;

/// The state of the stream gates, and its changes.
pub(crate) struct StreamGateMetrics {
    closed: IntGauge,
    /// By the new state.
    changes: Vec<IntCounter>,
}

impl StreamGateMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let closed = IntGauge::new(
            "sluice_gate_closed",
            "1 while best-effort processes hold back submitted work because a latency-critical process is busy",
        )?;
        registry.register(Box::new(closed.clone()))?;
        let changes = GateState::LABELS.iter().map(|to| {
            let opts = Opts::new(
                "sluice_gate_changes_total",
                "Changes of the stream gates of best-effort processes, by new state",
            );
            let counter = IntCounter::with_opts(opts.const_label("to", *to))?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        });
        Ok(Self { changes: changes.collect::<prometheus::Result<_>>()?, closed })
    }

    /// The counts by new state, for the node agent.
    pub(crate) fn to_proto(&self) -> HashMap<String, u64> {
        GateState::LABELS
            .iter()
            .zip(&self.changes)
            .map(|(to, counter)| ((*to).to_owned(), counter.get()))
            .collect()
    }

    /// Counts a change.
    pub(crate) fn changed(&self, to: GateState) {
        self.closed.set(i64::from(to.is_closed()));
        if let Some(counter) = self.changes.get(to.index()) {
            counter.inc();
        }
    }
}
