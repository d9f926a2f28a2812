//! Grants beside the holder's, for clients whose bursts are short: the GPU alternates between the two programs by itself.
//!
//! A client that works for 0.1 ms and pauses for 20 would otherwise wait for a grant of 50 ms before each of its bursts.
//!
//! The channel groups of a hardware-scheduled client with short bursts stay enabled while its work waits, so that its bursts need no control.
//! It is granted beside the holder while it is not ahead of the others, for a quantum. Beside one other client that is half a quantum of GPU
//! time, and a client that needs no more than that is granted so the next time, too.

use super::{Grant, ReturnKind, TokenLedger};
use crate::ids::ClientId;

/// How many waiting clients are looked at with each decision: few GPUs have more.
const LOOKED_AT: usize = 64;

impl TokenLedger {
    /// Whether fewer clients hold a grant than may.
    pub(super) fn has_room(&self) -> bool {
        let counts = |grant: &&Grant| !grant.beside && !self.is_left_over(grant);
        self.grants.iter().filter(counts).count() < self.policy.capacity.max(1)
    }

    /// The client that the ledger grants next beside the holder: one that held its last grant for a short time and is not ahead of the
    /// others. If the client holds this grant for longer, it waits for its turn the next time, and repays.
    pub(super) fn short_in_line(&self) -> Option<ClientId> {
        let is_one_beside = self.grants.iter().any(|grant| grant.beside);
        // While a hardware-scheduled process runs, the scheduler of channel groups keeps all others off the GPU.
        let is_hardware_scheduled = self.grants.iter().any(|grant| grant.hardware_scheduled);
        if self.has_room() || is_one_beside || is_hardware_scheduled {
            return None;
        }
        let is_short = |id: ClientId| self.clients.get(&id).is_some_and(|client| client.has_short_bursts);
        let in_line = self.queue.by_token().take(LOOKED_AT).take_while(|key| key.start <= self.virtual_now);
        in_line.map(|key| key.client).find(|client| is_short(*client))
    }

    /// The same for clients whose processes are all hardware-scheduled. There may be several of them beside the holder: to disable one of
    /// them would cost more than its bursts take.
    pub(super) fn alternating_in_line(&self) -> Option<ClientId> {
        if self.has_room() || !self.slots.is_empty() {
            return None;
        }
        let in_line = self.queue.with_hardware().take(LOOKED_AT);
        let in_line = in_line.take_while(|key| key.start <= self.virtual_now).map(|key| key.client);
        let mut alternating = in_line.filter(|id| {
            self.clients.get(id).is_some_and(|client| client.alternates && client.has_short_bursts)
        });
        let is_hardware =
            |id| self.processes.get(id).is_some_and(|process| process.kind == ReturnKind::HardwareScheduled);
        alternating.find(|id| self.clients[id].processes.iter().all(is_hardware))
    }

    /// Whether a client that uses its grants as this one has short bursts. A hardware-scheduled client whose waits are too short to leave
    /// its quantum holds the grant up to the deadline.
    pub(super) fn is_short(&self, grant: &Grant) -> bool {
        let alternates = self.clients.get(&grant.client).is_some_and(|client| client.alternates);
        if grant.hardware_scheduled && alternates {
            return grant.executed_ns < self.policy.quantum_ns / 2;
        }
        self.now.saturating_sub(grant.start) < self.policy.short_grant_ns && self.now < grant.deadline
    }

    /// The channel-group scheduler reports whether the groups of a hardware-scheduled client may be enabled beside those of the holder.
    pub fn set_alternates(&mut self, client: ClientId, alternates: bool) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.alternates = alternates;
        }
    }

    /// Whether a client was last granted for a short time: its next burst need not wait for the holder.
    pub fn has_short_bursts(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.has_short_bursts)
    }

    /// Whether a client that holds the GPU is to leave it as soon as its work waits: it has short bursts, and in this grant it has executed for
    /// less than half of the time.
    pub fn may_leave_at_once(&self, client: ClientId, now: u64) -> bool {
        let Some(grant) = self.grants.iter().find(|grant| grant.client == client) else { return false };
        self.has_short_bursts(client) && now.saturating_sub(grant.start) > grant.executed_ns.saturating_mul(2)
    }

    /// Whether a client holds a grant beside the holder's.
    pub fn is_beside(&self, client: ClientId) -> bool {
        self.grants.iter().any(|grant| grant.client == client && grant.beside)
    }
}
