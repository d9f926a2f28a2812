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
}

/// A client's account and its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    account: Account,
    peak: u64,
}

impl Client {
    fn use_bytes(&mut self, used: u64) {
        self.account.used = used;
        self.peak = self.peak.max(used);
    }
}

/// All accounts of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryLedger {
    clients: BTreeMap<ClientId, Client>,
    processes: BTreeMap<ProcessId, (ClientId, u64)>,
}

impl MemoryLedger {
    /// Adds a client, or changes the limit of an existing one. Its used bytes stay.
    pub fn set_limit(&mut self, client: ClientId, limit: u64) {
        self.clients.entry(client).or_default().account.limit = limit;
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
        match client.account.used.checked_add(bytes) {
            Some(used) if used <= client.account.limit => {
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
        client.account.used = client.account.used.saturating_sub(released);
        released
    }

    /// Sets the bytes of a process to the number that it declares, above the limit if necessary. The memory exists
    /// already: the manager was restarted, or the process ran without a manager for a while.
    pub fn redeclare(&mut self, process: ProcessId, bytes: u64) {
        if let Some((client, held)) = self.account_of(process) {
            let others = client.account.used.saturating_sub(*held);
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
    #[must_use]
    pub fn client(&self, client: ClientId) -> Option<Account> {
        self.clients.get(&client).map(|client| client.account)
    }

    /// The most bytes that a client has had in use at once; 0 if the client is not known.
    #[must_use]
    pub fn peak(&self, client: ClientId) -> u64 {
        self.clients.get(&client).map_or(0, |client| client.peak)
    }

    /// Bytes that a process holds.
    #[must_use]
    pub fn held_by(&self, process: ProcessId) -> u64 {
        self.processes.get(&process).map_or(0, |(_, held)| *held)
    }

    fn account_of(&mut self, process: ProcessId) -> Option<(&mut Client, &mut u64)> {
        let (client, held) = self.processes.get_mut(&process)?;
        Some((self.clients.get_mut(client)?, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POD: ClientId = ClientId(1);

    fn ledger(limit: u64, processes: u64) -> MemoryLedger {
        let mut ledger = MemoryLedger::default();
        ledger.set_limit(POD, limit);
        for process in 0..processes {
            assert!(ledger.open(ProcessId(process), POD));
        }
        ledger
    }

    #[test]
    fn limit_is_exact_to_the_byte_across_four_processes() {
        let mut ledger = ledger(1000, 4);
        for process in 0..4 {
            assert_eq!(ledger.reserve(ProcessId(process), 250), ReserveResult::Granted);
        }
        assert_eq!(ledger.reserve(ProcessId(3), 1), ReserveResult::Denied);
        assert_eq!(ledger.release(ProcessId(0), 1), 1);
        assert_eq!(ledger.reserve(ProcessId(3), 2), ReserveResult::Denied);
        assert_eq!(ledger.reserve(ProcessId(3), 1), ReserveResult::Granted);
        assert_eq!(ledger.client(POD), Some(Account { used: 1000, limit: 1000 }));
    }

    #[test]
    fn process_cannot_release_bytes_of_another() {
        let mut ledger = ledger(100, 2);
        ledger.reserve(ProcessId(0), 60);
        assert_eq!(ledger.release(ProcessId(1), 10), 0);
        assert_eq!(ledger.release(ProcessId(0), u64::MAX), 60);
        assert_eq!(ledger.client(POD), Some(Account { used: 0, limit: 100 }));
    }

    #[test]
    fn bytes_of_a_dead_process_are_freed_once() {
        let mut ledger = ledger(100, 2);
        ledger.reserve(ProcessId(0), 60);
        ledger.reserve(ProcessId(1), 40);
        assert_eq!(ledger.process_gone(ProcessId(0)), 60);
        assert_eq!(ledger.process_gone(ProcessId(0)), 0);
        assert_eq!(ledger.reserve(ProcessId(0), 1), ReserveResult::NoAccount);
        assert_eq!(ledger.reserve(ProcessId(1), 60), ReserveResult::Granted);
    }

    #[test]
    fn limit_below_use_frees_nothing_and_refuses_until_enough_is_released() {
        let mut ledger = ledger(100, 1);
        ledger.reserve(ProcessId(0), 80);
        ledger.set_limit(POD, 50);
        assert_eq!(ledger.client(POD), Some(Account { used: 80, limit: 50 }));
        assert_eq!(ledger.reserve(ProcessId(0), 0), ReserveResult::Denied);
        ledger.release(ProcessId(0), 40);
        assert_eq!(ledger.reserve(ProcessId(0), 11), ReserveResult::Denied);
        assert_eq!(ledger.reserve(ProcessId(0), 10), ReserveResult::Granted);
    }

    #[test]
    fn sizes_near_u64_max_are_refused_not_wrapped() {
        let mut ledger = ledger(u64::MAX, 2);
        assert_eq!(ledger.reserve(ProcessId(0), u64::MAX), ReserveResult::Granted);
        assert_eq!(ledger.reserve(ProcessId(1), 1), ReserveResult::Denied);
        ledger.redeclare(ProcessId(1), u64::MAX);
        assert_eq!(ledger.held_by(ProcessId(1)), 0);
    }

    #[test]
    fn declared_bytes_replace_the_account_even_above_the_limit() {
        let mut ledger = ledger(100, 2);
        ledger.reserve(ProcessId(0), 30);
        ledger.redeclare(ProcessId(0), 150);
        ledger.redeclare(ProcessId(1), 20);
        assert_eq!(ledger.client(POD), Some(Account { used: 170, limit: 100 }));
        ledger.redeclare(ProcessId(0), 10);
        assert_eq!(ledger.client(POD), Some(Account { used: 30, limit: 100 }));
    }

    proptest! {
        #[test]
        fn used_is_the_sum_of_the_processes_and_reservations_keep_the_limit(
            steps in prop::collection::vec((0u64..4, 0u8..5, prop_oneof![0u64..2000, any::<u64>()]), 1..200)
        ) {
            let mut ledger = ledger(1000, 4);
            for (process, step, bytes) in steps {
                let id = ProcessId(process);
                let before = ledger.client(POD).unwrap();
                match step {
                    0 | 1 => {
                        let result = ledger.reserve(id, bytes);
                        let after = ledger.client(POD).unwrap();
                        let expected = before.used.checked_add(bytes).filter(|used| *used <= before.limit);
                        prop_assert_eq!(result == ReserveResult::Granted, expected.is_some());
                        prop_assert_eq!(after.used, expected.unwrap_or(before.used));
                    }
                    2 => prop_assert!(ledger.release(id, bytes) <= bytes),
                    3 => {
                        ledger.process_gone(id);
                        prop_assert!(ledger.open(id, POD));
                    }
                    _ => ledger.redeclare(id, bytes),
                }
                let held: u128 = (0..4).map(|id| u128::from(ledger.held_by(ProcessId(id)))).sum();
                prop_assert_eq!(u128::from(ledger.client(POD).unwrap().used), held);
            }
        }
    }
}
