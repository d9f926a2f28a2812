//! Withholding grants, while the submitted work of best-effort processes is held back by their gates.

use super::grant::Grant;
use super::{Process, ReturnKind, TokenLedger};
use crate::ids::{ClientId, ProcessId};

impl TokenLedger {
    /// Sets whether grants are withheld from `now` on: only hardware-scheduled processes get new ones. The grants of
    /// [gated](Self::set_gated) processes are suspended meanwhile; all others continue to their ends.
    pub fn set_withheld(&mut self, withheld: bool, now: u64) {
        let now = self.at(now);
        match (self.withheld_since, withheld) {
            (None, true) => self.withheld_since = Some(now),
            (Some(since), false) => {
                for grant in &mut self.grants {
                    grant.add_withheld(since, now);
                }
                self.withheld_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Sets whether what a process submits under its grant is held back while grants are withheld. Until then it counts as not
    /// held back. Call it before the process learns of the grant.
    pub fn set_gated(&mut self, process: ProcessId, gated: bool) {
        for member in self.grants.iter_mut().flat_map(|grant| &mut grant.members) {
            if member.process == process {
                member.gated = gated && member.kind == ReturnKind::Returns;
            }
        }
    }

    /// Whether grants are withheld.
    #[must_use]
    pub const fn is_withheld(&self) -> bool {
        self.withheld_since.is_some()
    }

    /// Whether a process waits for a grant that it may get now.
    pub(super) fn is_grantable(&self, process: &Process) -> bool {
        process.waiting.is_some() && (!self.is_withheld() || process.kind == ReturnKind::HardwareScheduled)
    }

    /// GPU time of a client's running grant that is not charged yet.
    pub(super) fn running_ns(&self, client: ClientId, now: u64) -> u64 {
        let grant = self.grants.iter().find(|grant| grant.client == client);
        grant.map_or(0, |grant| grant.running_ns(now, self.withheld_since))
    }

    /// When the clock next changes a grant; `None` while it is suspended.
    pub(super) fn next_event_of(&self, grant: &Grant) -> Option<u64> {
        let suspended = self.withheld_since.is_some() && grant.can_be_suspended();
        (!suspended).then(|| grant.next_event(self.policy.return_timeout_ns))
    }
}

impl Grant {
    /// Whether all work under it is held back while grants are withheld.
    pub(super) fn can_be_suspended(&self) -> bool {
        !self.hardware_scheduled && !self.ungated && self.members.iter().all(|member| member.gated)
    }

    /// Adds a time in which grants were withheld, if the grant is suspended then.
    pub(super) fn add_withheld(&mut self, from: u64, to: u64) {
        if self.can_be_suspended() {
            self.suspended_ns = self.suspended_ns.saturating_add(to.saturating_sub(from.max(self.start)));
        }
    }
}
