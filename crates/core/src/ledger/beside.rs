//! Grants beside the holder's, for clients whose bursts are short: the GPU alternates between the two programs by itself.
//!
//! A client that works for 0.1 ms and pauses for 20 would otherwise wait for a grant of 50 ms before each of its bursts.

use super::{Grant, TokenLedger};
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
        if self.has_room() || is_one_beside || is_hardware_scheduled || self.is_withheld() {
            return None;
        }
        let is_short = |id: ClientId| self.clients.get(&id).is_some_and(|client| client.has_short_bursts);
        let in_line = self.queue.by_token().take(LOOKED_AT).take_while(|key| key.start <= self.virtual_now);
        in_line.map(|key| key.client).find(|client| is_short(*client))
    }
}
