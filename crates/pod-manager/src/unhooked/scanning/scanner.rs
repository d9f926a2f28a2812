//! The thread that scans for unhooked processes.

use super::inspection_schedule::InspectionSchedule;
use super::pod_limits::{PodLimits, QUERIES};
use super::{
    Candidate, ControlDescriptor, GrantPageMapping, Inspection, Obstacle, ProcessDiscovery, ProcessKey,
    Scope, Walk,
};
use crate::message::{Message, Remote};
use crate::unhooked::ownership::{OwnershipCheck, OwnershipProof};
use sluice_core::ProcessId;
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
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
    /// All candidates that have not attached. `None`: the scan failed, or looked only at changed processes.
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
    CheckOwnership { process: ProcessId, serial: u64, check: OwnershipCheck },
}

/// The sending end of the thread's task queue. The thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct UnhookedScanner(Sender<Task>);

impl UnhookedScanner {
    /// Starts the thread, which sends every result to `remote`.
    /// Errors: the thread cannot be started.
    pub(crate) fn start(discovery: Box<dyn ProcessDiscovery>, remote: Remote) -> io::Result<Self> {
        let (sender, tasks) = channel();
        let scanner = Scanner {
            discovery,
            schedule: InspectionSchedule::default(),
            limits: PodLimits::new(QUERIES),
            attached: RateLimiter::full(Rate::per_second(ATTACHED_US, ATTACHED_US)),
            remote,
            has_failed: false,
            last_page: ProcessKey::default(),
        };
        std::thread::Builder::new().name("sluice-unhooked".into()).spawn(move || scanner.serve(&tasks))?;
        Ok(Self(sender))
    }

    /// Requests a scan. The caller requests the next one after the result of this one.
    pub(crate) fn request_scan(&self, request: ScanRequest) {
        // The thread ends only after this sender.
        let _ = self.0.send(Task::Scan(request));
    }

    /// Requests an ownership check.
    pub(crate) fn check_ownership(&self, process: ProcessId, serial: u64, check: OwnershipCheck) {
        let _ = self.0.send(Task::CheckOwnership { process, serial, check });
    }
}

/// Orders candidates that are due since some time: the longest waiting one of each pod, then the next one of each pod, and so on. So a pod with
/// many processes delays only itself.
fn in_turn(mut due: Vec<(u64, &Candidate)>) -> impl Iterator<Item = &Candidate> {
    due.sort_by_key(|(since, candidate)| (*since, candidate.key));
    let mut of_pods: HashMap<&str, usize> = HashMap::new();
    let mut in_turn: Vec<(usize, &Candidate)> = Vec::new();
    for (_, candidate) in due {
        let of_pod = of_pods.entry(&candidate.pod.uid).or_default();
        in_turn.push((*of_pod, candidate));
        *of_pod += 1;
    }
    in_turn.sort_by_key(|(turn, _)| *turn);
    in_turn.into_iter().map(|(_, candidate)| candidate)
}

struct Scanner {
    discovery: Box<dyn ProcessDiscovery>,
    schedule: InspectionSchedule,
    limits: PodLimits,
    /// Microseconds of driver queries for attached processes in which nothing changes.
    attached: RateLimiter,
    remote: Remote,
    /// The last scan failed.
    has_failed: bool,
    /// The process whose grant page was checked last.
    last_page: ProcessKey,
}

/// Driver queries that the continued search of one complete scan may make: an eighth of a second of a real driver, so that all numbers of one
/// file take eight scans.
const CONTINUED_SEARCH: u32 = 1 << 17;
/// Microseconds of driver queries a second for attached processes in which nothing changes, inspections and continued search together: 0.4 % of a
/// processor. What is left to find are groups by ioctls of their own, and clients older than the attachment.
const ATTACHED_US: u64 = 1 << 12;

/// Time between two inspections: each query takes a lock of the driver, for which the controls and the programs wait.
const BETWEEN_INSPECTIONS: Duration = Duration::from_millis(10);
/// Time of one search for inspections, beside those that are requested.
const INSPECTED_WITHIN: Duration = Duration::from_millis(100);
/// Attached processes in which nothing changes that one search between two complete ones inspects.
const SETTLED_PER_SEARCH: usize = 4;

/// The look for a hook in a list of mappings counts as so many driver queries: about a millisecond.
const HOOK_QUERIES: u64 = 1 << 10;

/// Time of one scan for the checks of grant pages: 0.2 % of a processor. One page is checked in any case.
const PAGES_WITHIN: Duration = Duration::from_micros(500);

impl Scanner {
    fn serve(mut self, tasks: &Receiver<Task>) {
        for task in tasks {
            let result = match task {
                Task::Scan(request) => Message::ScanResult(self.scan(&request)),
                Task::CheckOwnership { process, serial, check } => Message::OwnershipProof(OwnershipProof {
                    process,
                    serial,
                    owns: self.discovery.owns(&check),
                }),
            };
            self.remote.send(result);
        }
    }

    fn scan(&mut self, request: &ScanRequest) -> ScanResult {
        let listed = if request.only_changed {
            let mut requested = request.requested.clone();
            let most_settled = if self.attached.available(request.now) > 0 { SETTLED_PER_SEARCH } else { 0 };
            requested.extend(self.schedule.due(request.now, most_settled));
            self.discovery.changed(&request.attached, &requested, &request.scope)
        } else {
            self.discovery.candidates(&request.scope)
        };
        let candidates = match listed {
            Ok(candidates) => candidates,
            Err(why) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("cannot scan for unhooked processes: {why}");
                }
                return ScanResult::default();
            }
        };
        self.has_failed = false;
        if !request.only_changed {
            self.schedule.retain(&candidates.iter().map(|candidate| candidate.key).collect());
            let pods = candidates.iter().map(|candidate| candidate.pod.uid.as_str()).collect();
            self.limits.divide(&pods, request.now);
        }
        let (attached, unhooked): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| request.attached.contains(&candidate.key));
        let mut inspected = self.inspect_due(attached.iter().chain(&unhooked), request);
        // A client found by the continued search is inspected in the same scan.
        if !request.only_changed {
            let mut found = self.discovery.continue_search(&unhooked, CONTINUED_SEARCH).found;
            let query_us = self.discovery.query_us();
            let affordable = u32::try_from(self.attached.available(request.now)).unwrap_or(u32::MAX);
            let continued = self.discovery.continue_search(&attached, affordable / query_us);
            self.attached.take((continued.queries * query_us).into(), u64::MAX, request.now);
            found.extend(continued.found);
            if !found.is_empty() {
                found.iter().for_each(|key| self.schedule.set_due(*key, request.now));
                inspected.extend(self.inspect_due(attached.iter().chain(&unhooked), request));
            }
        }
        let present = unhooked.iter().map(|candidate| candidate.key).collect();
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

    /// Inspects the candidates that are due or requested, one of each pod in turn. Candidates of a pod that has used up its queries wait for the
    /// next complete scan, and those for which no time is left for the next one.
    fn inspect_due<'a>(
        &mut self,
        candidates: impl Iterator<Item = &'a Candidate>,
        request: &ScanRequest,
    ) -> HashMap<ProcessKey, Vec<ControlDescriptor>> {
        let now = request.now;
        let mut due: Vec<(u64, &Candidate)> = Vec::new();
        for candidate in candidates {
            let (key, is_attached) = (candidate.key, request.attached.contains(&candidate.key));
            let since = self.schedule.due_since(key, &candidate.descriptors, is_attached, now);
            let requested = request.requested.contains(&key).then_some(now);
            due.extend(since.or(requested).map(|since| (since, candidate)));
        }
        let mut controllable = HashMap::new();
        let mut begun: Option<Instant> = None;
        for candidate in in_turn(due) {
            let is_requested = request.requested.contains(&candidate.key);
            let is_settled = self.schedule.is_settled(candidate.key) && !is_requested;
            let is_late = begun.is_some_and(|begun| begun.elapsed() >= INSPECTED_WITHIN);
            if is_late && !is_requested || is_settled && self.attached.available(now) == 0 {
                // It stays due.
                continue;
            }
            if !self.limits.allows(&candidate.pod.uid, now) {
                self.schedule.defer(candidate.key, now);
                continue;
            }
            if self.schedule.needs_hook(candidate.key) && self.has_hook(candidate, now) {
                self.schedule.wait_for_attach(candidate.key);
                continue;
            }
            if begun.is_some() {
                std::thread::sleep(BETWEEN_INSPECTIONS);
            }
            begun.get_or_insert_with(Instant::now);
            let is_attached = request.attached.contains(&candidate.key);
            let walk = if is_attached { Walk::Short } else { Walk::Complete };
            let descriptors = self.inspect(candidate, walk, is_settled, now);
            controllable.extend(descriptors.map(|descriptors| (candidate.key, descriptors)));
        }
        controllable
    }

    /// Whether a process has mapped a hook, so that it may attach by itself.
    fn has_hook(&mut self, candidate: &Candidate, now: u64) -> bool {
        self.limits.charge(&candidate.pod.uid, HOOK_QUERIES, now);
        self.discovery.maps_hook(candidate.key)
    }

    fn inspect(
        &mut self,
        candidate: &Candidate,
        walk: Walk,
        is_settled: bool,
        now: u64,
    ) -> Option<Vec<ControlDescriptor>> {
        let Inspection { result, queries } = self.discovery.inspect(candidate, walk);
        if is_settled {
            let cost = u64::from(queries) * u64::from(self.discovery.query_us());
            self.attached.take(cost, u64::MAX, now);
        }
        self.limits.charge(&candidate.pod.uid, queries.into(), now);
        // The copies of an ended process's descriptors may be the last ones, and keep its memory.
        if sluice_sys::pidfd::has_ended(candidate.pidfd.as_fd()) {
            return None;
        }
        let (descriptors, obstacle) = match result {
            Ok(descriptors) => (Some(descriptors), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let groups = descriptors.iter().flatten().flat_map(ControlDescriptor::handles).collect();
        self.schedule.record(candidate.key, groups, obstacle, now);
        descriptors
    }
}
