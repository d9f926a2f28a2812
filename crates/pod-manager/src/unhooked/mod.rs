//! Processes that run without the hook: when they are searched for, and what becomes of those that were found.
//!
//! The search itself runs on a thread of its own ([`scanning`]). This part decides when to search, keeps which processes cannot be
//! scheduled and why, and takes the groups of the others under control.

mod attached;
mod groups;
mod overfull;
pub(crate) mod ownership;
pub mod scanning;
mod search_result;

use crate::channel_groups::ChannelGroups;
use crate::clients::{Pages, Processes};
use crate::shared::Shared;
use crate::unhooked::scanning::{
    DriverLocks, GrantPageMapping, ObstacleKind, ProcessKey, ScanRequest, Scope, UnhookedScanner,
};
use sluice_core::ClientId;
use sluice_rate_limiter::Backoff;
use std::collections::{BTreeMap, HashMap, HashSet};
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

/// The most processes that are noted for later searches: a search may take long, and a tenant may start processes meanwhile.
const MOST_KEPT: usize = 4096;

/// The state of the search, and the processes whose groups could not be taken under control.
#[derive(Default)]
pub(crate) struct Unhooked {
    /// The searching thread; `None`: processes without the hook are not searched for.
    search: Option<UnhookedScanner>,
    /// A search has not reported yet.
    is_searching: bool,
    next_search: u64,
    /// When a search that was postponed begins in any case.
    postponed_until: Option<u64>,
    /// Searches so far.
    searches: u64,
    /// Attached processes with groups that are not under control, since when, and these groups.
    suspected: HashMap<ProcessKey, attached::Suspicion>,
    /// Processes with too many descriptors: a violation of each is recorded.
    overfull: HashSet<ProcessKey>,
    /// Attached processes that map another page than their grant page, and how often that was found.
    other_pages: HashMap<ProcessKey, (GrantPageMapping, u32)>,
    /// How long each process that had unannounced groups is scheduled from outside.
    outside: HashMap<ProcessKey, Backoff>,
    /// Processes to be inspected at once, whether they have changed or not.
    inspect_again: HashSet<ProcessKey>,
    /// The same, by the next search.
    inspect_next: HashSet<ProcessKey>,
    /// Processes that have attached and have closed that connection.
    attached_before: HashSet<ProcessKey>,
    /// Processes that are not scheduled, and why.
    unscheduled: BTreeMap<ProcessKey, (ClientId, ObstacleKind)>,
    /// Ownership checks requested so far.
    checks: u64,
    /// The driver's lock, for processes whose groups cannot be controlled; `None`: it is not used.
    locks: Option<DriverLocks>,
}

impl Unhooked {
    pub(crate) fn new(search: Option<UnhookedScanner>, lock_program: Option<PathBuf>) -> Self {
        Self { search, locks: lock_program.map(DriverLocks::with_helper), ..Self::default() }
    }

    /// When the next search is due, if there is a pod or a process to search.
    pub(crate) fn next_deadline(&self, shared: &Shared) -> Option<u64> {
        let is_something = || shared.clients.pods().next().is_some() || !shared.processes.is_empty();
        let may_search = self.search.is_some() && !self.is_searching && is_something();
        may_search.then_some(self.next_search)
    }

    /// Begins a search if one is due.
    pub(crate) fn search_if_due(&mut self, shared: &Shared) {
        let now = shared.io.now();
        let is_due = self.next_deadline(shared).is_some_and(|next| next <= now);
        if is_due && critical_process_works(shared) {
            let until = *self.postponed_until.get_or_insert(now.saturating_add(POSTPONED_AT_MOST_NS));
            if now < until {
                self.next_search = now.saturating_add(POSTPONED_NS).min(until);
                return;
            }
        }
        if let Some(search) = self.search.as_ref().filter(|_| is_due) {
            self.postponed_until = None;
            let scope = scope(shared);
            let attached: HashSet<ProcessKey> = shared.processes.attached_keys().collect();
            let is_recent = |suspicion: &attached::Suspicion| suspicion.is_recent(now);
            self.suspected.retain(|key, suspicion| attached.contains(key) || is_recent(suspicion));
            self.other_pages.retain(|key, _| attached.contains(key));
            let is_known = |key| shared.processes.find(key).is_some() || self.unscheduled.contains_key(&key);
            self.overfull.retain(|key| is_known(*key));
            self.outside.retain(|key, _| shared.processes.find(*key).is_some());
            let mut requested = std::mem::take(&mut self.inspect_again);
            requested.extend(self.inspect_next.drain());
            requested.extend(self.suspected.keys());
            let only_changed = !self.searches.is_multiple_of(COMPLETE_EVERY);
            self.searches += 1;
            let pages = shared.processes.grant_pages();
            search.request_scan(ScanRequest { now, scope, attached, requested, pages, only_changed });
            self.is_searching = true;
        }
    }

    /// Has a process inspected at once.
    pub(crate) fn inspect_again(&mut self, key: ProcessKey, now: u64) {
        if self.search.is_some() && self.inspect_again.len() < MOST_KEPT {
            self.inspect_again.insert(key);
            self.next_search = now;
        }
    }

    /// Has a process inspected by the next search: it has announced its groups anew.
    pub(crate) fn inspect_next(&mut self, key: ProcessKey) {
        if self.search.is_some() && self.inspect_next.len() < MOST_KEPT {
            self.inspect_next.insert(key);
        }
    }

    /// A process has ended.
    pub(crate) fn forget_process(&mut self, key: ProcessKey) {
        self.inspect_next.remove(&key);
        self.inspect_again.remove(&key);
        self.attached_before.remove(&key);
    }

    /// A process has closed the connection by which it had attached.
    pub(crate) fn detached(&mut self, key: ProcessKey) {
        if self.search.is_some() && self.attached_before.len() < MOST_KEPT {
            self.attached_before.insert(key);
        }
    }

    /// Whether a process has attached before.
    pub(crate) fn has_attached_before(&self, key: ProcessKey) -> bool {
        self.attached_before.contains(&key)
    }

    /// How many processes of a client run without the hook and are not scheduled, by [`ObstacleKind::index`].
    pub(crate) fn unscheduled(
        &self,
        client: ClientId,
        processes: &Processes,
        groups: &ChannelGroups,
    ) -> [i64; ObstacleKind::LABELS.len()] {
        let mut counts = [0; ObstacleKind::LABELS.len()];
        let its = self.unscheduled.values().filter(|(of, _)| *of == client).map(|(_, why)| *why);
        let on_probation = processes
            .of_client(client)
            .filter(|(id, process)| process.unhooked && groups.scheduler.is_on_probation(*id))
            .map(|_| ObstacleKind::ControlFailed);
        for why in its.chain(on_probation) {
            if let Some(count) = counts.get_mut(why.index()) {
                *count += 1;
            }
        }
        counts
    }

    /// Updates the gauges of processes without the hook.
    pub(crate) fn refresh_gauges(&self, groups: &ChannelGroups, shared: &Shared) {
        for (id, client) in shared.clients.iter() {
            let scheduled = i64::try_from(scheduled(id, &shared.processes, groups)).unwrap_or(i64::MAX);
            client.metrics.unhooked.set(scheduled);
            let unscheduled = self.unscheduled(id, &shared.processes, groups);
            for (gauge, count) in client.metrics.unscheduled.iter().zip(unscheduled) {
                gauge.set(count);
            }
        }
    }
}

/// How many processes of a client run without the hook and are scheduled all the same.
pub(crate) fn scheduled(client: ClientId, processes: &Processes, groups: &ChannelGroups) -> usize {
    let its = processes.of_client(client);
    its.filter(|(id, process)| process.unhooked && groups.scheduler.has_controlled_groups(*id)).count()
}

/// Whether a latency-critical process reports that it works. One that does not report its activity counts as idle here.
fn critical_process_works(shared: &Shared) -> bool {
    let is_critical = |client| shared.clients.class(client).is_some_and(|class| class.is_latency_critical());
    let mut attached = shared.processes.iter().filter(|(_, process)| process.is_attached());
    attached.any(|(_, process)| {
        let reports = process.pages.as_ref().is_some_and(Pages::reports_activity);
        reports && is_critical(process.client) && process.activity().busy
    })
}

/// What the next search looks at.
fn scope(shared: &Shared) -> Scope {
    let attached = shared.processes.iter().filter(|(_, process)| process.is_attached());
    let named = attached.filter(|(_, process)| is_named(process.client, shared));
    let named =
        named.filter_map(|(_, process)| Some((process.key?, shared.clients.name(process.client).to_owned())));
    Scope { pods: shared.clients.pods().cloned().collect(), named: named.collect() }
}

/// Whether a client is known by its name in the resource file, so that it has no pod.
fn is_named(client: ClientId, shared: &Shared) -> bool {
    shared
        .clients
        .get(client)
        .is_some_and(|client| !client.removed && client.definition.key.pod_uid().is_none())
}

#[cfg(test)]
mod tests;
