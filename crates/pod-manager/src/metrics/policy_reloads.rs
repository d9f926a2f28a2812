//! Counts of new texts of the policy file.

use super::Series;
use prometheus::{IntCounter, IntCounterVec};
use std::collections::HashMap;

const OUTCOMES: [&str; 2] = ["applied", "refused"];

/// Counters by outcome.
pub(crate) struct PolicyReloads([IntCounter; OUTCOMES.len()]);

impl PolicyReloads {
    pub(super) fn new(series: &mut Series) -> prometheus::Result<Self> {
        let help = "New texts of the policy file, by outcome: applied, or refused because of a mistake";
        let family = IntCounterVec::new(series.opts("sluice_policy_reloads_total", help), &["outcome"]);
        series.by_value(family, OUTCOMES).map(Self)
    }

    pub(crate) fn count(&self, applied: bool) {
        let [accepted, refused] = &self.0;
        if applied { accepted } else { refused }.inc();
    }

    /// The counts so far, for the node agent.
    pub(crate) fn by_outcome(&self) -> HashMap<String, u64> {
        let counts = OUTCOMES.iter().zip(&self.0);
        counts.map(|(outcome, counter)| ((*outcome).to_owned(), counter.get())).collect()
    }
}
