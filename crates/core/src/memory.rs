//! The memory ledger: one limit per client, one account per process, exact to the byte.
//!
//! What the driver reports beyond the charges (contexts, modules, rounding, memory of processes without the hook) is the client's
//! overhead. It counts towards the limit: a reservation is granted if charges, overhead and the reservation fit. Each reading
//! corrects it.
//!
//! Arithmetic saturates and never wraps. A limit that is lowered below the used bytes leaves `used > limit`: nothing is
//! freed, and further reservations are refused until enough has been released.

mod measurement;

use crate::ids::{ClientId, ProcessId};
use measurement::RecentCharges;
use std::collections::BTreeMap;

pub use measurement::REPORT_LAG_NS;

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
    /// Bytes that the driver reported beyond the reserved ones. Each reading corrects it.
    pub overhead: u64,
}

impl Account {
    /// Bytes that count towards the limit.
    pub fn total(&self) -> u64 {
        self.used.saturating_add(self.overhead)
    }
}

/// The account of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProcessAccount {
    client: ClientId,
    /// Bytes that it has reserved.
    held: u64,
    /// What readings show beyond the bytes that it held when they were taken, as far as it has not declared that since.
    overhead: u64,
    /// The bytes that it held in recent times.
    recent: RecentCharges,
}

impl ProcessAccount {
    fn hold(&mut self, held: u64) {
        self.held = held;
        self.recent.record(held);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ClientAccount {
    account: Account,
    /// The part of the used bytes that is within the limit, or was so before the limit was lowered. A process may declare any number of
    /// bytes. So only this part is compared with readings.
    accepted: u64,
    /// The accepted bytes of recent times.
    recent: RecentCharges,
    /// The part of the last reading that belonged to processes without an account, as far as none of them has declared it since.
    unknown: u64,
    /// Bytes in accounts that were closed, since the client was added, and this number in recent times.
    closed_bytes: u64,
    closed: RecentCharges,
}

impl ClientAccount {
    fn use_bytes(&mut self, used: u64) {
        self.account.used = used;
        self.account.peak = self.account.peak.max(used);
        self.accepted = used.min(self.account.limit.max(self.accepted));
        self.recent.record(self.accepted);
    }

    /// Takes bytes out of the overhead that are charged now, or that have ended with their process.
    fn reduce_overhead(&mut self, bytes: u64) {
        self.account.overhead = self.account.overhead.saturating_sub(bytes);
    }

    /// Bytes above the limit. What a limit that was lowered below the charges takes away is no excess.
    fn excess(&self) -> u64 {
        let counted = self.accepted.saturating_add(self.account.overhead);
        if self.accepted > self.account.limit { 0 } else { counted.saturating_sub(self.account.limit) }
    }

    /// The account with the overhead beyond all used bytes, also beyond those that are not accepted.
    fn shown(&self) -> Account {
        let overhead = self.account.overhead.saturating_sub(self.account.used.saturating_sub(self.accepted));
        Account { overhead, ..self.account }
    }
}

/// A reading of the memory of one client's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When the reading was begun, nanoseconds.
    pub taken_ns: u64,
    /// The processes that have an account.
    pub processes: Vec<ProcessReading>,
    /// Bytes of all other processes of the client.
    pub unknown: u64,
}

/// A reading of the memory of one process that has an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessReading {
    /// The process.
    pub process: ProcessId,
    /// Its bytes.
    pub bytes: u64,
    /// Whether all charges for these bytes are in this account. A process has several accounts if it has several connections of Gemini's
    /// protocol.
    pub is_only_account: bool,
}

/// All accounts of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryLedger {
    clients: BTreeMap<ClientId, ClientAccount>,
    processes: BTreeMap<ProcessId, ProcessAccount>,
}

impl MemoryLedger {
    /// Adds a client, or changes the limit of an existing one. Its used bytes stay.
    pub fn set_limit(&mut self, client: ClientId, limit: u64) {
        let client = self.clients.entry(client).or_default();
        let accepted = client.accepted;
        client.account.limit = limit;
        client.use_bytes(client.account.used);
        client.reduce_overhead(client.accepted.saturating_sub(accepted));
    }

    /// Removes a client and the accounts of its processes.
    pub fn remove_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.processes.retain(|_, process| process.client != client);
    }

    /// Opens an account for a process of a known client. A process that has one keeps it. Returns `false` if the client
    /// is unknown.
    pub fn open(&mut self, process: ProcessId, client: ClientId) -> bool {
        if !self.clients.contains_key(&client) {
            return false;
        }
        self.processes.entry(process).or_insert(ProcessAccount {
            client,
            held: 0,
            overhead: 0,
            recent: RecentCharges::default(),
        });
        true
    }

    /// Reserves `bytes` for a process if its client's limit allows.
    pub fn reserve(&mut self, process: ProcessId, bytes: u64) -> ReserveResult {
        let Some((client, process)) = self.account_of(process) else { return ReserveResult::NoAccount };
        let Account { used, limit, overhead, .. } = client.account;
        match used.checked_add(bytes) {
            Some(used) if used.checked_add(overhead).is_some_and(|total| total <= limit) => {
                client.use_bytes(used);
                process.hold(process.held.saturating_add(bytes));
                ReserveResult::Granted
            }
            _ => ReserveResult::Denied,
        }
    }

    /// Releases at most the bytes that the process holds. Returns how many.
    pub fn release(&mut self, process: ProcessId, bytes: u64) -> u64 {
        let Some((client, process)) = self.account_of(process) else { return 0 };
        let released = bytes.min(process.held);
        process.hold(process.held - released);
        client.use_bytes(client.account.used.saturating_sub(released));
        released
    }

    /// Sets the bytes of a process to the number that it declares, above the limit if necessary. The memory exists
    /// already: the manager was restarted, or the process ran without a manager for a while. If the last reading counted it as overhead of
    /// this process or of one without an account, it is overhead no longer.
    pub fn redeclare(&mut self, process: ProcessId, bytes: u64) {
        if let Some((client, process)) = self.account_of(process) {
            let others = client.account.used.saturating_sub(process.held);
            let held = bytes.min(u64::MAX - others);
            let more = held.saturating_sub(process.held);
            let own = more.min(process.overhead);
            let unknown = (more - own).min(client.unknown);
            process.overhead -= own;
            client.unknown -= unknown;
            client.reduce_overhead(own.saturating_add(unknown));
            process.hold(held);
            client.use_bytes(others + held);
        }
    }

    /// Compares a client's charges with a reading. The charge of the moment to which the reading belongs is not known, only the smallest
    /// and the largest one of that time. So the overhead is known to lie between two bounds. It stays as it is between them, and
    /// otherwise becomes the nearer bound. Neither an allocation nor a free that the driver does not report yet counts as overhead.
    ///
    /// The same holds for each process, so what a process has freed, or has reserved and not allocated yet, does not hide the context of
    /// another one.
    /// `now`: nanoseconds, not before the reading was begun.
    pub fn measure(&mut self, client: ClientId, reading: &Reading, now: u64) {
        let Some(ClientAccount { account, accepted, recent, unknown, closed_bytes, closed }) =
            self.clients.get_mut(&client)
        else {
            return;
        };
        let mut processes: BTreeMap<_, _> =
            self.processes.iter_mut().filter(|(_, process)| process.client == client).collect();
        let mut before = BTreeMap::new();
        for (id, process) in &mut processes {
            let held = process.recent.finish_period(reading.taken_ns, now, process.held);
            before.insert(**id, (held, std::mem::take(&mut process.overhead)));
        }
        *unknown = reading.unknown;
        let (mut measured, mut proven) = (reading.unknown, 0_u64);
        for ProcessReading { process: id, bytes, is_only_account } in &reading.processes {
            measured = measured.saturating_add(*bytes);
            let Some((process, (held, overhead))) = processes.get_mut(id).zip(before.get(id)) else {
                continue;
            };
            let (least, most) = (bytes.saturating_sub(*held.end()), bytes.saturating_sub(*held.start()));
            process.overhead = (*overhead).clamp(least, most);
            if *is_only_account {
                proven = proven.saturating_add(process.overhead);
            }
        }
        let charged = recent.finish_period(reading.taken_ns, now, *accepted);
        let closed = closed.finish_period(reading.taken_ns, now, *closed_bytes);
        let closed = closed.end() - closed.start();
        let least = measured.saturating_sub(*charged.end()).max(proven.saturating_sub(closed));
        let most = measured.saturating_sub(*charged.start()).max(least);
        account.overhead = account.overhead.clamp(least, most);
    }

    /// Bytes by which accepted charges and overhead exceed a client's limit, by its last reading; 0 if the limit was lowered below the
    /// charges.
    pub fn excess(&self, client: ClientId) -> u64 {
        self.clients.get(&client).map_or(0, ClientAccount::excess)
    }

    /// Whether a reading is of use even if no process is there: a client has overhead, of which a reading may find less, or has released
    /// charges since the last reading. Those would otherwise count as charges of the time of the next reading, and hide overhead.
    pub fn awaits_reading(&self) -> bool {
        self.clients
            .values()
            .any(|client| client.account.overhead > 0 || client.recent.released_since_reading())
    }

    /// Closes the account of a process that has ended. Returns how many bytes were freed.
    pub fn process_gone(&mut self, process: ProcessId) -> u64 {
        if let Some((client, process)) = self.account_of(process) {
            client.reduce_overhead(process.overhead);
            // A process that opens another account may still be shown with what it held in this one.
            client.closed_bytes = client.closed_bytes.saturating_add(process.held);
            client.closed.record(client.closed_bytes);
        }
        let returned = self.release(process, u64::MAX);
        self.processes.remove(&process);
        returned
    }

    /// The account of a client, if it is known.
    pub fn client(&self, client: ClientId) -> Option<Account> {
        self.clients.get(&client).map(ClientAccount::shown)
    }

    /// Bytes that a process holds.
    pub fn held_by(&self, process: ProcessId) -> u64 {
        self.processes.get(&process).map_or(0, |process| process.held)
    }

    fn account_of(&mut self, process: ProcessId) -> Option<(&mut ClientAccount, &mut ProcessAccount)> {
        let process = self.processes.get_mut(&process)?;
        Some((self.clients.get_mut(&process.client)?, process))
    }
}

#[cfg(test)]
mod measurement_tests;
#[cfg(test)]
mod tests;
