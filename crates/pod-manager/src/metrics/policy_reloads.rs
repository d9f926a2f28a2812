//! Counts of new texts of the policy file.

use super::Series;
use prometheus::{IntCounter, IntCounterVec};

/// Counters by outcome.
pub(crate) struct PolicyReloads([IntCounter; 2]);

impl PolicyReloads {
    pub(super) fn new(series: &mut Series) -> prometheus::Result<Self> {
        let help = "New texts of the policy file, by outcome: applied, or refused because of a mistake";
        let family = IntCounterVec::new(series.opts("sluice_policy_reloads_total", help), &["outcome"]);
        series.by_value(family, ["applied", "refused"]).map(Self)
    }

    pub(crate) fn count(&self, applied: bool) {
        let [accepted, refused] = &self.0;
        if applied { accepted } else { refused }.inc();
    }
}
