//! Processes that run without the hook: when they are searched for, and what becomes of those that were found.
//!
//! The search itself runs on a thread of its own ([`scanning`]). This part decides when to search, keeps which processes cannot be
//! scheduled and why, and takes the groups of the others under control.

mod groups;
mod locked;
mod ownership;
pub mod scanning;

pub(crate) use ownership::was_found_elsewhere;

use crate::channel_groups::ChannelGroups;
use crate::clients::{Clients, Processes};
use crate::effect::{Effect, Effects};
use crate::identity::Identity;
use crate::io::Io;
use crate::unhooked::scanning::{
    DriverLocks, Obstacle, ObstacleKind, ProcessKey, ScanRequest, ScanResult, UncontrollableProcess,
    UnhookedScanner,
};
use sluice_core::ledger::TokenLedger;
use sluice_core::{ClientId, ProcessId};
use sluice_rate_limiter::Backoff;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use tracing::warn;

/// Time between the result of a search and the next search.
const SEARCH_INTERVAL_NS: u64 = 1_000_000_000;

/// The other parts of the manager, borrowed while the result of a search is applied.
pub(crate) struct OtherParts<'a> {
    pub(crate) clients: &'a mut Clients,
    pub(crate) processes: &'a mut Processes,
    pub(crate) groups: &'a mut ChannelGroups,
    pub(crate) ledger: &'a mut TokenLedger,
    pub(crate) io: &'a mut Io,
}

/// The state of the search, and the processes whose groups could not be taken under control.
#[derive(Default)]
pub(crate) struct Unhooked {
    /// The searching thread; `None`: processes without the hook are not searched for.
    search: Option<UnhookedScanner>,
    /// A search has not reported yet.
    is_searching: bool,
    next_search: u64,
    /// Processes to be inspected by the next search, whether they have changed or not.
    inspect_again: HashSet<ProcessKey>,
    /// Processes that are not scheduled, and why.
    unscheduled: BTreeMap<ProcessKey, (ClientId, ObstacleKind)>,
    /// Processes of which a control has failed. The others of their pods are scheduled all the same.
    failed: HashMap<ProcessKey, Backoff>,
    /// Ownership checks requested so far.
    checks: u64,
    /// The driver's lock, for processes whose groups cannot be controlled; `None`: it is not used.
    locks: Option<DriverLocks>,
}

impl Unhooked {
    pub(crate) fn new(search: Option<UnhookedScanner>, lock_program: Option<PathBuf>) -> Self {
        Self { search, locks: lock_program.map(DriverLocks::with_helper), ..Self::default() }
    }

    /// When the next search is due, if there is a pod to search.
    pub(crate) fn next_deadline(&self, clients: &Clients) -> Option<u64> {
        let may_search = self.search.is_some() && !self.is_searching && clients.pods().next().is_some();
        may_search.then_some(self.next_search)
    }

    /// Begins a search if one is due.
    pub(crate) fn search_if_due(&mut self, clients: &Clients, processes: &Processes, now: u64) {
        if self.next_deadline(clients).is_none_or(|next| next > now) {
            return;
        }
        if let Some(search) = &self.search {
            let pods = clients.pods().cloned().collect();
            let again = std::mem::take(&mut self.inspect_again);
            search.request_scan(ScanRequest {
                now,
                pods,
                attached: processes.attached_keys().collect(),
                requested: again,
            });
            self.is_searching = true;
        }
    }

    /// Has a process inspected at once.
    pub(crate) fn inspect_again(&mut self, key: ProcessKey, now: u64) {
        self.inspect_again.insert(key);
        self.next_search = now;
    }

    /// Applies the result of a search.
    pub(crate) fn search_ended(&mut self, result: ScanResult, mut parts: OtherParts<'_>) -> Effects {
        let ScanResult { candidates, controllable, uncontrollable } = result;
        let mut effects = Effects::new();
        self.is_searching = false;
        let pause = if self.inspect_again.is_empty() { SEARCH_INTERVAL_NS } else { 0 };
        self.next_search = parts.io.now().saturating_add(pause);
        if let Some(candidates) = candidates {
            self.unscheduled.retain(|key, _| candidates.contains(key));
            self.failed.retain(|key, _| candidates.contains(key));
        }
        for found in uncontrollable {
            effects.extend(self.uncontrollable(found, &mut parts));
        }
        for found in controllable {
            let Some(client) = parts.clients.find(&Identity::Pod(found.pod.clone())) else {
                parts.io.closer.close(found.descriptors);
                continue;
            };
            let (key, command) = (found.key, found.command.clone());
            match self.take_groups(client, found, &mut parts, &mut effects) {
                Ok(()) => drop(self.unscheduled.remove(&key)),
                Err(obstacle) => {
                    let id = parts.processes.find(key);
                    effects.extend(self.not_scheduled(id, client, key, &command, &obstacle, &mut parts));
                }
            }
        }
        effects
    }

    /// Handles a process whose groups cannot be taken under control.
    fn uncontrollable(&mut self, found: UncontrollableProcess, parts: &mut OtherParts<'_>) -> Effects {
        let UncontrollableProcess { key, command, pod, pidfd, obstacle } = found;
        let known = parts.processes.find(key);
        let Some(client) = parts.clients.find(&Identity::Pod(pod.clone())) else { return Effects::new() };
        let process = known.and_then(|id| parts.processes.get(id));
        if process.is_some_and(|process| process.is_attached() || process.client != client) {
            self.unscheduled.remove(&key);
            return Effects::new();
        }
        let may_lock = obstacle.kind.can_be_locked() && self.can_lock(client, parts.clients);
        let id = known.or_else(|| {
            may_lock.then(|| groups::add_process(client, key, &command, pod.container, pidfd, parts))
        });
        self.not_scheduled(id, client, key, &command, &obstacle, parts)
    }

    /// Holds a process by the driver's lock if that is possible, or notes why it is not scheduled.
    fn not_scheduled(
        &mut self,
        id: Option<ProcessId>,
        client: ClientId,
        key: ProcessKey,
        command: &str,
        obstacle: &Obstacle,
        parts: &mut OtherParts<'_>,
    ) -> Effects {
        if let Some(id) = id
            && obstacle.kind.can_be_locked()
            && self.lock_instead(id, client, obstacle, parts)
        {
            self.unscheduled.remove(&key);
            return vec![Effect::SchedulingChanged(id)];
        }
        self.note_unscheduled(client, key, command, obstacle, parts);
        id.map_or_else(Effects::new, |id| vec![Effect::ReleaseGroups(id), Effect::SchedulingChanged(id)])
    }

    /// Notes why a process is not scheduled, and logs it once.
    fn note_unscheduled(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        command: &str,
        obstacle: &Obstacle,
        parts: &mut OtherParts<'_>,
    ) {
        let noted = self.unscheduled.insert(key, (client, obstacle.kind));
        if noted != Some((client, obstacle.kind)) && parts.io.may_log("unscheduled").is_some() {
            let client = parts.clients.name(client);
            let (pid, reason) = (key.0, obstacle.kind.label());
            warn!(
                client,
                pid, command, reason, "process runs without the hook and is not scheduled: {obstacle}"
            );
        }
    }

    /// How many processes of a client run without the hook and are not scheduled, by [`ObstacleKind::index`].
    pub(crate) fn unscheduled(&self, client: ClientId) -> [i64; ObstacleKind::LABELS.len()] {
        let mut counts = [0; ObstacleKind::LABELS.len()];
        for (_, why) in self.unscheduled.values().filter(|(of, _)| *of == client) {
            if let Some(count) = counts.get_mut(why.index()) {
                *count += 1;
            }
        }
        counts
    }

    /// Updates the gauges of processes without the hook.
    pub(crate) fn refresh_gauges(&self, clients: &Clients, processes: &Processes, groups: &ChannelGroups) {
        for (id, client) in clients.iter() {
            let scheduled = i64::try_from(scheduled(id, processes, groups)).unwrap_or(i64::MAX);
            client.metrics.unhooked.set(scheduled);
            for (gauge, count) in client.metrics.unscheduled.iter().zip(self.unscheduled(id)) {
                gauge.set(count);
            }
        }
    }
}

/// How many processes of a client run without the hook and are scheduled all the same.
pub(crate) fn scheduled(client: ClientId, processes: &Processes, groups: &ChannelGroups) -> usize {
    let its = processes.of_client(client);
    its.filter(|(id, process)| process.unhooked && groups.has_working_group(*id)).count()
}
