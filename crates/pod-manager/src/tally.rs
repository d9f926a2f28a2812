//! What a client has had beside what the ledgers know: waits and, by its own word, calls around the gate.

use sluice_comm::page::ReportView;
use sluice_hook_core::outcome::Bypass;
use std::collections::HashMap;

/// Sums over the processes of a client that have ended, and its waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Time that granted requests had waited.
    pub(crate) wait_ns: u64,
    bypassed: [u64; Bypass::ALL.len()],
}

impl Tally {
    /// Adds what a process has reported.
    pub(crate) fn add_bypassed(&mut self, report: ReportView<'_>) {
        for (sum, reason) in self.bypassed.iter_mut().zip(Bypass::ALL) {
            // A process can write anything there.
            *sum = sum.saturating_add(report.bypassed(reason.index()));
        }
    }

    /// Calls that went around the gate, by reason; reasons that never were are left out.
    pub(crate) fn bypassed(&self) -> HashMap<String, u64> {
        let some = Bypass::ALL.iter().zip(self.bypassed).filter(|(_, count)| *count > 0);
        some.map(|(reason, count)| (reason.label().to_owned(), count)).collect()
    }
}
