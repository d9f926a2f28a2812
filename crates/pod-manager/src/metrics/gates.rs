//! The series of the gates.

use prometheus::{IntCounter, IntGauge, Opts, Registry};
use sluice_core::gates::Gating;
use std::collections::HashMap;

/// Says what the gates of best-effort processes are at.
pub(crate) struct GateMetrics {
    closed: IntGauge,
    /// By what they changed to.
    changes: Vec<IntCounter>,
}

impl GateMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let closed = IntGauge::new(
            "sluice_gate_closed",
            "1 while best-effort processes hold what they have submitted, for somebody latency-critical is busy",
        )?;
        registry.register(Box::new(closed.clone()))?;
        let changes = Gating::LABELS.iter().map(|to| {
            let opts =
                Opts::new("sluice_gate_changes_total", "Changes of the gates of best-effort processes");
            let counter = IntCounter::with_opts(opts.const_label("to", *to))?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        });
        Ok(Self { changes: changes.collect::<prometheus::Result<_>>()?, closed })
    }

    /// How often they changed to what, as the node agent hears it.
    pub(crate) fn said(&self) -> HashMap<String, u64> {
        Gating::LABELS
            .iter()
            .zip(&self.changes)
            .map(|(to, counter)| ((*to).to_owned(), counter.get()))
            .collect()
    }

    /// They have changed.
    pub(crate) fn changed(&self, to: Gating) {
        self.closed.set(i64::from(to.is_closed()));
        if let Some(counter) = self.changes.get(to.index()) {
            counter.inc();
        }
    }
}
