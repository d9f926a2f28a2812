//! Why a client was granted: for traces. Nothing is decided here.

use super::TokenLedger;
use crate::ids::{ClientId, ProcessId};

/// Why a process was granted, and no process of another client in its place. The text is the name in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum GrantReason {
    /// Its client is latency-critical.
    LatencyCritical,
    /// Its client holds the GPU already: it joins the running grant.
    Joined,
    /// Its client has short bursts and runs beside the holder.
    Beside,
    /// Slots of gangs had put its client further behind than they may.
    Neglected,
    /// The slot of its client's gang is open.
    Slot,
    /// Its client's gang uses time that belongs to no slot.
    OutsideSlot,
    /// No other client that may be granted waits.
    Alone,
    /// Its client has the smallest virtual time of those that wait.
    SmallestVirtualTime,
}

impl TokenLedger {
    /// Why the last call of [`Self::advance`], at `now`, granted a process. Call it before the ledger changes.
    #[must_use]
    pub fn grant_reason(&self, process: ProcessId, client: ClientId, now: u64) -> GrantReason {
        let grant = self.grants.iter().find(|grant| grant.client == client);
        let Some(grant) = grant.filter(|grant| grant.members.iter().any(|member| member.process == process))
        else {
            return GrantReason::LatencyCritical;
        };
        if grant.start < now {
            return GrantReason::Joined;
        }
        if grant.beside {
            return GrantReason::Beside;
        }
        if !self.slots.is_empty() {
            if self.is_neglected(client) {
                return GrantReason::Neglected;
            }
            if self.is_in_slot(client, now) {
                return GrantReason::Slot;
            }
            if self.slots.contains(client) {
                return GrantReason::OutsideSlot;
            }
        }
        if self.queue.is_empty() { GrantReason::Alone } else { GrantReason::SmallestVirtualTime }
    }
}
