//! Grants that are withheld, while what best-effort processes have submitted is held back.

use super::grant::Grant;
use super::{PeerKind, Process, TokenLedger};
use crate::ids::{ClientId, ProcessId};

impl TokenLedger {
    /// Whether grants are withheld from `now` on: nobody gets a new one but those that are steered. Who holds one and is
    /// [gated](Self::set_gated) is taken to stand meanwhile; all others go on to the ends of theirs.
    pub fn set_withheld(&mut self, withheld: bool, now: u64) {
        let now = self.at(now);
        match (self.withheld_since, withheld) {
            (None, true) => self.withheld_since = Some(now),
            (Some(since), false) => {
                for grant in &mut self.grants {
                    grant.stood(since, now);
                }
                self.withheld_since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Whether a process holds back what it has submitted while grants are withheld, from its next grant on. Nothing if it is not
    /// known.
    pub fn set_gated(&mut self, process: ProcessId, gated: bool) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.gated = gated;
        }
    }

    /// A process goes on while grants are withheld, whatever was said of it: what it holds is charged as if it had never stood.
    pub fn set_ungated(&mut self, process: ProcessId) {
        self.set_gated(process, false);
        let its = |grant: &&mut Grant| grant.members.iter().any(|member| member.process == process);
        for grant in self.grants.iter_mut().filter(its) {
            (grant.ungated, grant.stood_ns) = (true, 0);
        }
    }

    /// Whether grants are withheld.
    #[must_use]
    pub const fn is_withheld(&self) -> bool {
        self.withheld_since.is_some()
    }

    /// Whether a process of this kind may be granted anything now.
    pub(super) fn may_be_granted(&self, kind: PeerKind) -> bool {
        self.withheld_since.is_none() || kind == PeerKind::Steered
    }

    /// Whether a process waits for what it may be granted now.
    pub(super) fn has_a_chance(&self, process: &Process) -> bool {
        process.waiting.is_some() && self.may_be_granted(process.kind)
    }

    /// Whether a process of the client does.
    pub(super) fn client_has_a_chance(&self, client: ClientId) -> bool {
        self.processes.values().any(|process| process.client == client && self.has_a_chance(process))
    }

    /// When the clock next changes a grant: one that stands is waited for.
    pub(super) fn next_event_of(&self, grant: &Grant) -> Option<u64> {
        let stands = self.withheld_since.is_some() && grant.can_stand();
        (!stands).then(|| grant.next_event(self.policy.return_timeout_ns))
    }
}

impl Grant {
    /// Whether what runs under it stands while grants are withheld.
    pub(super) fn can_stand(&self) -> bool {
        !self.steered && !self.ungated
    }

    /// It stood between these times, if it can.
    pub(super) fn stood(&mut self, from: u64, to: u64) {
        if self.can_stand() {
            self.stood_ns = self.stood_ns.saturating_add(to.saturating_sub(from.max(self.start)));
        }
    }
}
