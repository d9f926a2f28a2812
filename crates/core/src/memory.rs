//! The memory ledger: one limit per client, one account per process, exact to the byte.
//!
//! Arithmetic saturates and never wraps. A limit lowered below what is in use leaves `used > limit`: nothing is taken
//! away, only further reservations are refused until enough has been released.

use crate::ids::{ClientId, ProcessId};
use std::collections::BTreeMap;

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes are reserved.
    Granted,
    /// The client's limit does not allow them; nothing changed.
    Denied,
    /// The process has no account (it has gone, or its client was removed); nothing changed.
    NoAccount,
}

/// What a client has reserved and may reserve, in bytes. `used > limit` after a limit was lowered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// Bytes reserved by all processes of the client.
    pub used: u64,
    /// Bytes they may reserve together.
    pub limit: u64,
}

/// All accounts of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryLedger {
    clients: BTreeMap<ClientId, Account>,
    processes: BTreeMap<ProcessId, (ClientId, u64)>,
}

impl MemoryLedger {
    /// Adds a client, or changes the limit of one that exists; what it uses stays.
    pub fn set_limit(&mut self, client: ClientId, limit: u64) {
        self.clients.entry(client).or_default().limit = limit;
    }

    /// Forgets a client and the accounts of its processes.
    pub fn remove_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.processes.retain(|_, (owner, _)| *owner != client);
    }

    /// Opens an account for a process of a known client; a process that has one keeps it. `false`: unknown client.
    pub fn open(&mut self, process: ProcessId, client: ClientId) -> bool {
        if !self.clients.contains_key(&client) {
            return false;
        }
        self.processes.entry(process).or_insert((client, 0));
        true
    }

    /// Reserves `bytes` for a process if its client's limit allows.
    pub fn reserve(&mut self, process: ProcessId, bytes: u64) -> Verdict {
        let Some((account, held)) = self.account_of(process) else { return Verdict::NoAccount };
        match account.used.checked_add(bytes) {
            Some(used) if used <= account.limit => {
                account.used = used;
                *held = held.saturating_add(bytes);
                Verdict::Granted
            }
            _ => Verdict::Denied,
        }
    }

    /// Releases at most what the process holds; says how many bytes that was.
    pub fn release(&mut self, process: ProcessId, bytes: u64) -> u64 {
        let Some((account, held)) = self.account_of(process) else { return 0 };
        let released = bytes.min(*held);
        *held -= released;
        account.used = account.used.saturating_sub(released);
        released
    }

    /// Sets what a process holds to what it declares, over the limit if need be: its memory exists, whatever the limit
    /// says (the manager was restarted, or the process went on alone for a while).
    pub fn redeclare(&mut self, process: ProcessId, bytes: u64) {
        if let Some((account, held)) = self.account_of(process) {
            let others = account.used.saturating_sub(*held);
            *held = bytes.min(u64::MAX - others);
            account.used = others + *held;
        }
    }

    /// Closes the account of a dead process; says how many bytes its client got back.
    pub fn process_gone(&mut self, process: ProcessId) -> u64 {
        let returned = self.release(process, u64::MAX);
        self.processes.remove(&process);
        returned
    }

    /// The account of a client, if it is known.
    #[must_use]
    pub fn client(&self, client: ClientId) -> Option<Account> {
        self.clients.get(&client).copied()
    }

    /// Bytes that a process holds.
    #[must_use]
    pub fn held_by(&self, process: ProcessId) -> u64 {
        self.processes.get(&process).map_or(0, |(_, held)| *held)
    }

    fn account_of(&mut self, process: ProcessId) -> Option<(&mut Account, &mut u64)> {
        let (client, held) = self.processes.get_mut(&process)?;
        Some((self.clients.get_mut(client)?, held))
    }
}
