//! The thread that scans for unhooked processes.

mod inspections;

use super::inspection_schedule::InspectionSchedule;
use super::ownership_queue::{OwnershipQueue, RequestedCheck};
use super::pod_limits::{PodLimits, QUERIES, SETTLED_US};
use super::{
    Candidate, CandidateList, ControlDescriptor, GrantPageMapping, Obstacle, Ownership, ProcessDiscovery,
    ProcessKey, Scope,
};
use crate::report::Report;
use crate::unhooked::scanning::OwnershipCheck;
use sluice_core::ProcessId;
use sluice_core::processes::OwnershipProof;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tracing::warn;

/// A request for a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanRequest {
    /// The manager's clock, nanoseconds.
    pub(crate) now: u64,
    /// Which processes are looked at.
    pub(crate) scope: Scope,
    /// Processes that have attached. Their groups are found too, and compared with those that they have announced.
    pub(crate) attached: HashSet<ProcessKey>,
    /// The grant pages of attached processes.
    pub(crate) pages: Vec<(ProcessKey, GrantPageMapping)>,
    /// Look only at the processes that are named here and whose number of descriptors has changed.
    pub(crate) only_changed: bool,
    /// Processes that are inspected even if no inspection is due.
    pub(crate) requested: HashSet<ProcessKey>,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanResult {
    /// All candidates, attached ones too. `None`: the scan failed, or looked only at changed processes.
    pub(crate) candidates: Option<HashSet<ProcessKey>>,
    /// All processes of which the last inspection met an obstacle, then those that were inspected in this scan and can be controlled,
    /// with their control descriptors. No descriptor: the process has closed the driver, or uses only other GPUs.
    pub(crate) inspected: Vec<(Candidate, Result<Vec<ControlDescriptor>, Obstacle>)>,
    /// Processes that map another page than their grant page.
    pub(crate) other_page: Vec<ProcessKey>,
    /// The attached processes that were inspected in this scan.
    pub(crate) attached: Vec<(Candidate, Result<Vec<ControlDescriptor>, Obstacle>)>,
}

/// A task of the thread.
#[derive(Debug)]
enum Task {
    Scan(ScanRequest),
    /// Requested at this time of the manager's clock.
    CheckOwnership(u64, RequestedCheck),
}

/// The sending end of the thread's task queue. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct UnhookedScanner(Sender<Task>);

impl UnhookedScanner {
    /// Starts the thread, which reports every result.
    /// Errors: the thread cannot be started.
    pub(crate) fn start(
        discovery: Box<dyn ProcessDiscovery>,
        (results, proofs): (Report<ScanResult>, Report<OwnershipProof>),
    ) -> io::Result<Self> {
        let (sender, tasks) = channel();
        let scanner = Scanner {
            discovery,
            schedule: InspectionSchedule::default(),
            limits: PodLimits::new(QUERIES),
            settled: PodLimits::new(SETTLED_US),
            requested: HashMap::new(),
            checks: OwnershipQueue::default(),
            now: 0,
            tasks,
            next_scan: None,
            results,
            proofs,
            has_failed: false,
            last_page: ProcessKey::default(),
        };
        std::thread::Builder::new().name("sluice-unhooked".into()).spawn(move || scanner.serve())?;
        Ok(Self(sender))
    }

    /// Requests a scan. The caller requests the next one after the result of this one.
    pub(crate) fn request_scan(&self, request: ScanRequest) {
        // The thread ends only after this sender.
        let _ = self.0.send(Task::Scan(request));
    }

    /// Requests an ownership check.
    pub(crate) fn check_ownership(&self, process: ProcessId, serial: u64, check: OwnershipCheck, now: u64) {
        let _ = self.0.send(Task::CheckOwnership(now, RequestedCheck { process, serial, check }));
    }
}

struct Scanner {
    discovery: Box<dyn ProcessDiscovery>,
    schedule: InspectionSchedule,
    limits: PodLimits,
    /// Microseconds of driver queries for attached processes in which nothing changes.
    settled: PodLimits,
    /// Processes that are inspected although no inspection is due, and since when: those of the last searches that found no time for them
    /// too.
    requested: HashMap<ProcessKey, u64>,
    checks: OwnershipQueue,
    /// The manager's clock when the newest task was requested.
    now: u64,
    tasks: Receiver<Task>,
    /// A search that was requested during the last one.
    next_scan: Option<ScanRequest>,
    results: Report<ScanResult>,
    proofs: Report<OwnershipProof>,
    /// The last scan failed.
    has_failed: bool,
    /// The process whose grant page was checked last.
    last_page: ProcessKey,
}

/// Driver queries that the continued search of one complete scan may make, so that all numbers of one file take eight scans.
const CONTINUED_SEARCH: u32 = 1 << 17;
/// Attached processes in which nothing changes that one search between two complete ones inspects.
const SETTLED_PER_SEARCH: usize = 4;

/// Time of one scan for the checks of grant pages: 0.1 % of a processor. One page is checked in any case.
const PAGES_WITHIN: Duration = Duration::from_micros(250);

impl Scanner {
    fn serve(mut self) {
        loop {
            while let Ok(task) = self.tasks.try_recv() {
                self.accept(task);
            }
            let has_checked = self.check_ownership();
            if let Some(request) = self.next_scan.take() {
                let result = self.scan(&request);
                self.results.send(result);
            } else if !has_checked {
                let Ok(task) = self.tasks.recv() else { return };
                self.accept(task);
            }
        }
    }

    fn accept(&mut self, task: Task) {
        let now = match task {
            Task::Scan(request) => self.next_scan.insert(request).now,
            Task::CheckOwnership(now, requested) => {
                self.checks.add(requested);
                now
            }
        };
        self.now = self.now.max(now);
    }

    /// Makes one ownership check of each pod that has one and queries left. The others wait; their processes are scheduled by token meanwhile.
    /// Returns whether there was one.
    fn check_ownership(&mut self) -> bool {
        let now = self.now;
        let round = self.checks.take_round(|pod| self.limits.allows(pod, now));
        for RequestedCheck { process, serial, check } in &round {
            let Ownership { result: owns, queries } = self.discovery.owns(check);
            self.limits.charge(&check.pod, queries.into(), now);
            let proof = OwnershipProof { process: *process, serial: *serial, owns };
            self.proofs.send(proof);
        }
        !round.is_empty()
    }

    fn scan(&mut self, request: &ScanRequest) -> ScanResult {
        for key in &request.requested {
            self.requested.entry(*key).or_insert(request.now);
        }
        let (candidates, postponed) = match self.candidates(request) {
            Ok(CandidateList { candidates, postponed }) => (candidates, postponed),
            Err(why) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("cannot scan for unhooked processes: {why}");
                }
                return ScanResult::default();
            }
        };
        self.has_failed = false;
        let mut present: HashSet<ProcessKey> = candidates.iter().map(|candidate| candidate.key).collect();
        present.extend(&postponed);
        self.requested.retain(|key, _| present.contains(key));
        if !request.only_changed {
            self.schedule.retain(&present);
            let pods = candidates.iter().map(|candidate| candidate.pod.uid.as_str()).collect();
            self.limits.divide(&pods, request.now);
        }
        let (mut attached, unhooked): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| request.attached.contains(&candidate.key));
        if !request.only_changed {
            attached.sort_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
            let pods = attached.iter().map(|candidate| candidate.pod.uid.as_str()).collect();
            self.settled.divide(&pods, request.now);
        }
        let mut inspected = self.inspect_due(attached.iter().chain(&unhooked), request);
        // A client found by the continued search is inspected in the same scan.
        if !request.only_changed {
            let mut found = self.discovery.continue_search(&unhooked, CONTINUED_SEARCH).found;
            for of_pod in attached.chunk_by(|one, other| one.pod.uid == other.pod.uid) {
                found.extend(self.continue_search_of_attached(of_pod, request.now));
            }
            if !found.is_empty() {
                found.iter().for_each(|key| self.schedule.set_due(*key, request.now));
                inspected.extend(self.inspect_due(attached.iter().chain(&unhooked), request));
            }
        }
        let mut result_of = |candidate: Candidate| {
            let obstacle = self.schedule.obstacle(candidate.key).cloned().map(Err);
            let result = inspected.remove(&candidate.key).map(Ok).or(obstacle)?;
            Some((candidate, result))
        };
        let attached = attached.into_iter().filter_map(&mut result_of).collect();
        let mut inspected: Vec<_> = unhooked.into_iter().filter_map(&mut result_of).collect();
        inspected.sort_by_key(|(_, result)| result.is_ok());
        let candidates = (!request.only_changed).then_some(present);
        let other_page = self.find_other_pages(&request.pages);
        ScanResult { candidates, inspected, other_page, attached }
    }

    /// The candidates at which a search looks, and those for which it has no time.
    fn candidates(&mut self, request: &ScanRequest) -> io::Result<CandidateList> {
        if !request.only_changed {
            return self.discovery.candidates(&request.scope);
        }
        let may_inspect = |pod: &str| self.settled.allows(pod, request.now);
        let due = self.schedule.due(&self.requested, request.now, SETTLED_PER_SEARCH, may_inspect);
        let due: HashSet<ProcessKey> = due.into_iter().collect();
        let candidates = self.discovery.changed(&request.attached, &due, &request.scope)?;
        let postponed = self.requested.keys().filter(|key| !due.contains(key)).copied().collect();
        Ok(CandidateList { candidates, postponed })
    }

    /// Continues the search in the attached processes of one pod, as far as its part of the queries allows.
    fn continue_search_of_attached(&mut self, of_pod: &[Candidate], now: u64) -> HashSet<ProcessKey> {
        let Some(pod) = of_pod.first().map(|candidate| candidate.pod.uid.as_str()) else {
            return HashSet::new();
        };
        let query_us = self.discovery.query_us();
        let affordable = u32::try_from(self.settled.available(pod, now)).unwrap_or(u32::MAX) / query_us;
        let continued = self.discovery.continue_search(of_pod, affordable);
        self.settled.charge(pod, u64::from(continued.queries) * u64::from(query_us), now);
        continued.found
    }

    /// Checks grant pages, within [`PAGES_WITHIN`] in one scan: a list of mappings is as long as the tenant makes it. The next scan goes on
    /// where this one has ended.
    fn find_other_pages(&mut self, pages: &[(ProcessKey, GrantPageMapping)]) -> Vec<ProcessKey> {
        let begun = Instant::now();
        let first = pages.iter().position(|(key, _)| *key > self.last_page).unwrap_or(0);
        let mut found = Vec::new();
        for (key, page) in pages.iter().cycle().skip(first).take(pages.len()) {
            self.last_page = *key;
            if self.discovery.maps_page(*key, page) == Some(false) {
                found.push(*key);
            }
            if begun.elapsed() >= PAGES_WITHIN {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
