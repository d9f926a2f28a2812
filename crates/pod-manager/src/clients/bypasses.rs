//! Calls around the launch gate, as the processes of a client report them.

use sluice_comm::page::ReportView;
use sluice_hook_core::outcome::Bypass;
use std::collections::HashMap;

/// Counts by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bypasses([u64; Bypass::ALL.len()]);

impl Bypasses {
    /// Adds what a process has reported.
    pub(crate) fn add(&mut self, report: ReportView<'_>) {
        for (sum, reason) in self.0.iter_mut().zip(Bypass::ALL) {
            // A process can write any number there.
            *sum = sum.saturating_add(report.bypassed(reason.index()));
        }
    }

    /// The counts by reason, without those that are zero.
    pub(crate) fn by_label(&self) -> HashMap<String, u64> {
        let some = Bypass::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        some.map(|(reason, count)| (reason.label().to_owned(), count)).collect()
    }
}
