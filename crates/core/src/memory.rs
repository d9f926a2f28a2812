//! The memory ledger: one limit per client, one account per process, exact to the byte.
//!
//! Arithmetic saturates and never wraps. A limit that is lowered below the used bytes leaves `used > limit`: nothing is
//! freed, and further reservations are refused until enough has been released.

use crate::ids::{ClientId, ProcessId};
use std::collections::BTreeMap;

/// Result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveResult {
    /// The bytes are reserved.
    Granted,
    /// The client's limit does not allow them. Nothing changed.
    Denied,
    /// The process has no account: it has ended, or its client was removed. Nothing changed.
    NoAccount,
}

/// Bytes that a client has reserved and may reserve. `used > limit` after a limit was lowered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// Bytes reserved by all processes of the client.
    pub used: u64,
    /// Bytes they may reserve together.
    pub limit: u64,
    /// The most bytes that were reserved at once.
    pub peak: u64,
}

impl Account {
    fn use_bytes(&mut self, used: u64) {
        self.used = used;
        self.peak = self.peak.max(used);
    }
}

/// All accounts of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryLedger {
    clients: BTreeMap<ClientId, Account>,
    processes: BTreeMap<ProcessId, (ClientId, u64)>,
}

impl MemoryLedger {
    /// Adds a client, or changes the limit of an existing one. Its used bytes stay.
    pub fn set_limit(&mut self, client: ClientId, limit: u64) {
        self.clients.entry(client).or_default().limit = limit;
    }

    /// Removes a client and the accounts of its processes.
    pub fn remove_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.processes.retain(|_, (owner, _)| *owner != client);
    }

    /// Opens an account for a process of a known client. A process that has one keeps it. Returns `false` if the client
    /// is unknown.
    pub fn open(&mut self, process: ProcessId, client: ClientId) -> bool {
        if !self.clients.contains_key(&client) {
            return false;
        }
        self.processes.entry(process).or_insert((client, 0));
        true
    }

    /// Reserves `bytes` for a process if its client's limit allows.
    pub fn reserve(&mut self, process: ProcessId, bytes: u64) -> ReserveResult {
        let Some((client, held)) = self.account_of(process) else { return ReserveResult::NoAccount };
        match client.used.checked_add(bytes) {
            Some(used) if used <= client.limit => {
                client.use_bytes(used);
                *held = held.saturating_add(bytes);
                ReserveResult::Granted
            }
            _ => ReserveResult::Denied,
        }
    }

    /// Releases at most the bytes that the process holds. Returns how many.
    pub fn release(&mut self, process: ProcessId, bytes: u64) -> u64 {
        let Some((client, held)) = self.account_of(process) else { return 0 };
        let released = bytes.min(*held);
        *held -= released;
        client.used = client.used.saturating_sub(released);
        released
    }

    /// Sets the bytes of a process to the number that it declares, above the limit if necessary. The memory exists
    /// already: the manager was restarted, or the process ran without a manager for a while.
    pub fn redeclare(&mut self, process: ProcessId, bytes: u64) {
        if let Some((client, held)) = self.account_of(process) {
            let others = client.used.saturating_sub(*held);
            *held = bytes.min(u64::MAX - others);
            client.use_bytes(others + *held);
        }
    }

    /// Closes the account of a process that has ended. Returns how many bytes were freed.
    pub fn process_gone(&mut self, process: ProcessId) -> u64 {
        let returned = self.release(process, u64::MAX);
        self.processes.remove(&process);
        returned
    }

    /// The account of a client, if it is known.
    pub fn client(&self, client: ClientId) -> Option<Account> {
        self.clients.get(&client).copied()
    }

    /// Bytes that a process holds.
    pub fn held_by(&self, process: ProcessId) -> u64 {
        self.processes.get(&process).map_or(0, |(_, held)| *held)
    }

    fn account_of(&mut self, process: ProcessId) -> Option<(&mut Account, &mut u64)> {
        let (client, held) = self.processes.get_mut(&process)?;
        Some((self.clients.get_mut(client)?, held))
    }
}

#[cfg(test)]
mod tests;
