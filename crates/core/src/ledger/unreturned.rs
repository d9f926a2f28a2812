//! Grants that the ledger took back before the process returned them: the work runs on, and is charged when the process reports it.
//!
//! Beyond the return timeout, time for which another process of the client waited for a grant is left out. The work may have waited for work
//! of that process. Otherwise a client would be charged for the time in which it waits for its limit, and wait longer each time. Peers whose
//! grants end by timer overrun each of them a little, and are charged for all of that.

use super::TokenLedger;
use crate::ids::{ClientId, ProcessId};

/// The end of a grant that the ledger took back before the process returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Unreturned {
    deadline: u64,
    /// When the ledger took it back, and until when it has charged it.
    ended: u64,
    /// What the client had been charged in all by then.
    charged_ns: u64,
    /// The grant ended by timer.
    by_timer: bool,
    /// Time since then for which other processes of the client waited for a grant, and the end of this time so far.
    left_out_ns: u64,
    left_out_until: u64,
}

impl Unreturned {
    pub(super) const fn new(deadline: u64, ended: u64, charged_ns: u64, by_timer: bool) -> Self {
        Self { deadline, ended, charged_ns, by_timer, left_out_ns: 0, left_out_until: ended }
    }

    /// Another process of the client has waited for a grant from `since` to `now`.
    fn leave_out(&mut self, since: u64, now: u64) {
        if self.by_timer {
            return;
        }
        self.left_out_ns += now.saturating_sub(since.max(self.left_out_until));
        self.left_out_until = self.left_out_until.max(now);
    }

    /// GPU time to charge at `now`, if the process reports that it used `overuse_ns` after the deadline. `always_ns`: of this much nothing is
    /// left out. `charged_ns`: what the client has been charged in all. Grants of other processes are part of the same time.
    fn late_ns(&self, overuse_ns: u64, always_ns: u64, charged_ns: u64, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.ended);
        let most = elapsed.saturating_sub(self.left_out_ns).max(always_ns.min(elapsed));
        let uncharged = elapsed.saturating_sub(charged_ns.saturating_sub(self.charged_ns));
        overuse_ns.saturating_sub(self.ended.saturating_sub(self.deadline)).min(most).min(uncharged)
    }
}

impl TokenLedger {
    /// Charges what a process used after a grant that it had not returned. `overuse_ns`: its use since the deadline.
    pub(super) fn charge_unreturned(&mut self, process: ProcessId, overuse_ns: u64) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let Some(mut unreturned) = entry.unreturned.take() else { return };
        let client = entry.client;
        if let Some(since) = self.sibling_waits_since(process, client) {
            unreturned.leave_out(since, self.now);
        }
        let charged_ns = self.clients.get(&client).map_or(0, |client| client.charged_ns);
        let always_ns = self.policy.return_timeout_ns;
        let (ended, late) =
            (unreturned.ended, unreturned.late_ns(overuse_ns, always_ns, charged_ns, self.now));
        self.charge(client, (ended, ended + late), late, late);
        self.advance_or_owe(client, late);
    }

    /// These processes of the client that holds the grant at `index` have waited since these times, and have been granted now.
    pub(super) fn leave_waits_out(&mut self, index: usize, granted: &[(ProcessId, u64)]) {
        let Some(client) = self.clients.get(&self.grants[index].client) else { return };
        for id in &client.processes {
            let Some(process) = self.processes.get_mut(id) else { continue };
            let waits = granted.iter().filter(|(other, _)| other != id).map(|(_, since)| *since);
            if let (Some(unreturned), Some(since)) = (&mut process.unreturned, waits.min()) {
                unreturned.leave_out(since, self.now);
            }
        }
    }

    /// Since when another process of the client waits for a grant.
    fn sibling_waits_since(&self, process: ProcessId, client: ClientId) -> Option<u64> {
        let processes = self.clients.get(&client).into_iter().flat_map(|client| &client.processes);
        let siblings = processes.filter(|id| **id != process).filter_map(|id| self.processes.get(id));
        siblings.filter_map(|sibling| Some(sibling.waiting?.since)).min()
    }
}
