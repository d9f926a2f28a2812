//! The policy file has changed: the parts follow the new settings from here on.

use super::EventLoop;
use crate::config::Policies;

impl EventLoop {
    /// Replaces the settings of all parts. Running grants keep their deadlines, and no connection is touched. `None`: the new file has a
    /// mistake.
    pub(super) fn apply_policies(&mut self, policies: Option<Box<Policies>>) {
        self.io.metrics.policy_reloads.count(policies.is_some());
        let Some(policies) = policies else { return };
        let Policies { ledger, channel_groups } = *policies;
        self.grants.ledger.set_policy(ledger);
        self.processes.scheduler.set_slices(&channel_groups);
    }
}
