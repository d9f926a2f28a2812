//! Inspection of processes from outside: when they are searched, and what the search looks at.
//!
//! The search itself runs on a thread of its own ([`scanning`]). What follows from its results is decided in
//! [`sluice_core::processes`].

pub mod scanning;

use crate::clients::Clients;
use crate::processes::{Pages, Processes, activity, grant_pages};
use scanning::{DriverLocks, OwnershipCheck, ProcessKey, ScanRequest, Scope, UnhookedScanner};
use sluice_core::{ClientId, ProcessId};
use std::collections::HashSet;
use std::path::PathBuf;

/// Time between the result of a search and the next search.
const SEARCH_INTERVAL_NS: u64 = 250_000_000;
/// A search takes locks of the driver, so it does not begin while a latency-critical process works: it is tried again after this time, and begins
/// at last after the longer time.
const POSTPONED_NS: u64 = 2_000_000;
const POSTPONED_AT_MOST_NS: u64 = 50_000_000;
/// One search in so many reads all processes of the node: one in two seconds. The others look at new processes and at those with a changed
/// number of descriptors.
const COMPLETE_EVERY: u64 = 8;

/// The state of the search.
#[derive(Default)]
pub(crate) struct Unhooked {
    /// The searching thread; `None`: processes are not inspected from outside.
    search: Option<UnhookedScanner>,
    /// A search has not reported yet.
    is_searching: bool,
    /// A search was requested since the last one began.
    is_requested: bool,
    next_search: u64,
    /// When a search that was postponed begins in any case.
    postponed_until: Option<u64>,
    /// Searches so far.
    searches: u64,
    /// The driver's lock, for processes whose groups cannot be controlled; `None`: it is not used.
    pub(crate) locks: Option<DriverLocks>,
}

impl Unhooked {
    pub(crate) fn new(search: Option<UnhookedScanner>, lock_program: Option<PathBuf>) -> Self {
        Self { search, locks: lock_program.map(DriverLocks::with_helper), ..Self::default() }
    }

    /// When the next search is due, if there is a pod or a process to search.
    pub(crate) fn next_deadline(&self, clients: &Clients, processes: &Processes) -> Option<u64> {
        let is_something = || clients.pods().next().is_some() || !processes.is_empty();
        let may_search = self.search.is_some() && !self.is_searching && is_something();
        may_search.then_some(self.next_search)
    }

    /// Begins a search if one is due.
    pub(crate) fn search_if_due(&mut self, clients: &Clients, processes: &mut Processes, now: u64) {
        let is_due = self.next_deadline(clients, processes).is_some_and(|next| next <= now);
        if is_due && critical_process_works(clients, processes) {
            let until = *self.postponed_until.get_or_insert(now.saturating_add(POSTPONED_AT_MOST_NS));
            if now < until {
                self.next_search = now.saturating_add(POSTPONED_NS).min(until);
                return;
            }
        }
        if let Some(search) = self.search.as_ref().filter(|_| is_due) {
            self.postponed_until = None;
            let requested = processes.begin_search(now);
            let attached: HashSet<ProcessKey> = processes.announcing_keys().collect();
            let only_changed = !self.searches.is_multiple_of(COMPLETE_EVERY);
            self.searches += 1;
            let (scope, pages) = (scope(clients, processes), grant_pages(processes));
            search.request_scan(ScanRequest { now, scope, attached, requested, pages, only_changed });
            (self.is_searching, self.is_requested) = (true, false);
        }
    }

    /// Has a search begin at once.
    pub(crate) fn request_search(&mut self, now: u64) {
        (self.is_requested, self.next_search) = (true, now);
    }

    /// A search has reported.
    pub(crate) fn search_ended(&mut self, now: u64) {
        self.is_searching = false;
        let pause = if self.is_requested { 0 } else { SEARCH_INTERVAL_NS };
        self.next_search = now.saturating_add(pause);
    }

    /// Requests the check of an announcement.
    pub(crate) fn check_ownership(&self, id: ProcessId, serial: u64, check: OwnershipCheck, now: u64) {
        if let Some(search) = &self.search {
            search.check_ownership(id, serial, check, now);
        }
    }
}

/// Whether a latency-critical process reports that it works. One that does not report its activity counts as idle here.
fn critical_process_works(clients: &Clients, processes: &Processes) -> bool {
    let mut attached = processes.iter().filter(|(_, process)| process.is_attached());
    attached.any(|(_, process)| {
        let reports = process.endpoint.pages.as_ref().is_some_and(Pages::reports_activity);
        reports && clients.is_critical(process.client) && activity(process).busy
    })
}

/// What the next search looks at.
fn scope(clients: &Clients, processes: &Processes) -> Scope {
    let attached = processes.iter().filter(|(_, process)| process.is_attached());
    let named = attached.filter(|(_, process)| is_named(process.client, clients));
    let named =
        named.filter_map(|(_, process)| Some((process.key?, clients.name(process.client).to_owned())));
    Scope { pods: clients.pods().cloned().collect(), named: named.collect() }
}

/// Whether a client is known by its name in the resource file, so that it has no pod.
pub(crate) fn is_named(client: ClientId, clients: &Clients) -> bool {
    clients.get(client).is_some_and(|client| !client.removed && client.definition.key.pod_uid().is_none())
}
