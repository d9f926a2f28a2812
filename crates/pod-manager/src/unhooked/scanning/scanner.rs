//! The thread that scans for unhooked processes.

use super::inspection_schedule::{InspectionSchedule, PodQueryLimits};
use super::{Candidate, ControlDescriptor, Inspection, Obstacle, ProcessDiscovery, ProcessKey};
use crate::message::{Message, Remote};
use crate::unhooked::ownership::{OwnershipCheck, OwnershipProof};
use sluice_core::ProcessId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;

/// A request for a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanRequest {
    /// The manager's clock, nanoseconds.
    pub(crate) now: u64,
    /// The clients' pods, by UID.
    pub(crate) pods: HashSet<String>,
    /// Processes that have attached: they are never inspected.
    pub(crate) attached: HashSet<ProcessKey>,
    /// Processes that are inspected even if no inspection is due.
    pub(crate) requested: HashSet<ProcessKey>,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanResult {
    /// All candidates that have not attached. `None`: the scan failed.
    pub(crate) candidates: Option<HashSet<ProcessKey>>,
    /// All processes of which the last inspection met an obstacle, then those that were inspected in this scan and can be controlled,
    /// with their control descriptors. No descriptor: the process has closed the driver, or uses only other GPUs.
    pub(crate) inspected: Vec<(Candidate, Result<Vec<ControlDescriptor>, Obstacle>)>,
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
            limits: PodQueryLimits::default(),
            remote,
            has_failed: false,
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

struct Scanner {
    discovery: Box<dyn ProcessDiscovery>,
    schedule: InspectionSchedule,
    limits: PodQueryLimits,
    remote: Remote,
    /// The last scan failed.
    has_failed: bool,
}

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
        let mut candidates = match self.discovery.candidates(&request.pods) {
            Ok(candidates) => candidates,
            Err(why) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("cannot scan for unhooked processes: {why}");
                }
                return ScanResult::default();
            }
        };
        self.has_failed = false;
        candidates.retain(|candidate| !request.attached.contains(&candidate.key));
        let present = candidates.iter().map(|candidate| candidate.key).collect();
        self.schedule.retain(&present);
        let pods = candidates.iter().map(|candidate| candidate.pod.uid.as_str()).collect();
        self.limits.begin_scan(&pods, request.now);
        let mut inspected = self.inspect_due(&candidates, request.now, &request.requested);
        // A client found by the continued search is inspected in the same scan.
        let found = self.discovery.continue_search(&candidates);
        if !found.is_empty() {
            found.iter().for_each(|key| self.schedule.set_due(*key, request.now));
            inspected.extend(self.inspect_due(&candidates, request.now, &HashSet::new()));
        }
        let result_of = |candidate: Candidate| {
            let obstacle = self.schedule.obstacle(candidate.key).cloned().map(Err);
            let result = inspected.remove(&candidate.key).map(Ok).or(obstacle)?;
            Some((candidate, result))
        };
        let mut inspected: Vec<_> = candidates.into_iter().filter_map(result_of).collect();
        inspected.sort_by_key(|(_, result)| result.is_ok());
        ScanResult { candidates: Some(present), inspected }
    }

    /// Inspects the candidates that are due or in `again`. The one that has waited longest comes first; candidates of a pod that has used up
    /// its queries wait for the next scan.
    fn inspect_due(
        &mut self,
        candidates: &[Candidate],
        now: u64,
        again: &HashSet<ProcessKey>,
    ) -> HashMap<ProcessKey, Vec<ControlDescriptor>> {
        let mut due: Vec<(u64, &Candidate)> = Vec::new();
        for candidate in candidates {
            let since = self.schedule.due_since(candidate.key, &candidate.descriptors, now);
            let requested = again.contains(&candidate.key).then_some(now);
            due.extend(since.or(requested).map(|since| (since, candidate)));
        }
        due.sort_by_key(|(since, candidate)| (*since, candidate.key));
        let mut controllable = HashMap::new();
        for (_, candidate) in due {
            if self.limits.allows(&candidate.pod.uid, now) {
                let descriptors = self.inspect(candidate, now);
                controllable.extend(descriptors.map(|descriptors| (candidate.key, descriptors)));
            } else {
                self.schedule.set_due(candidate.key, now);
            }
        }
        controllable
    }

    fn inspect(&mut self, candidate: &Candidate, now: u64) -> Option<Vec<ControlDescriptor>> {
        let Inspection { result, queries } = self.discovery.inspect(candidate);
        self.limits.charge(&candidate.pod.uid, queries, now);
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
