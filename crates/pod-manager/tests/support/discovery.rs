//! A discovery of unhooked processes that the test controls.

use super::driver::{Descriptor, context};
use super::peers::container;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_core::pod_cgroup::PodCgroup;
use sluice_pod_manager::unhooked::scanning::{
    Candidate, CandidateList, ContinuedSearch, ControlDescriptor, GrantPageMapping, Inspection, Obstacle,
    ObstacleKind, Ownership, OwnershipCheck, ProcessDiscovery, ProcessKey, Scope, Walk,
};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An unhooked process of a pod.
struct Unhooked {
    pod: String,
    end: EventFd,
    descriptors: Vec<i32>,
    /// Its control descriptor with the groups behind it, or why it cannot be controlled.
    open: Result<(OwnedFd, Vec<u32>), ObstacleKind>,
}

#[derive(Default)]
struct State {
    processes: BTreeMap<ProcessKey, Unhooked>,
    scans: usize,
    /// Complete searches and others.
    searches: usize,
    inspected: Vec<ProcessKey>,
    /// When the last inspection ended, and the shortest time from one to the next.
    last_inspection: Option<Instant>,
    between_inspections: Option<Duration>,
    fails: bool,
    /// Driver queries of one inspection, by process id; 1 otherwise.
    queries: BTreeMap<i32, u32>,
    /// Processes that are new, or whose number of descriptors has changed, since the last search.
    changed: HashSet<ProcessKey>,
    /// Processes that have mapped a hook, by process id.
    hooks: HashSet<i32>,
    /// Processes with a client that the continued search has newly found.
    found: HashSet<ProcessKey>,
    /// Processes that map another page than their grant page.
    other_page: HashSet<i32>,
    /// Results of ownership checks, by process id; `Ok(true)` otherwise.
    ownership: BTreeMap<i32, Result<bool, ObstacleKind>>,
    /// Cost of one ownership check, by process id; 1 otherwise.
    check_queries: BTreeMap<i32, u32>,
}

/// Finds the processes that the test has added.
#[derive(Clone, Default)]
pub struct FakeDiscovery(Arc<Mutex<State>>);

impl FakeDiscovery {
    /// Adds a process of this pod with these groups. Returns its control descriptor, of which the test keeps the other end.
    pub fn add_process(&self, pid: i32, pod: &str, groups: &[u32]) -> Descriptor {
        let descriptor = Descriptor::new();
        let copy = descriptor.sent.as_fd().try_clone_to_owned().unwrap();
        self.add(pid, pod, Ok((copy, groups.to_vec())));
        descriptor
    }

    /// Adds a process that cannot be controlled.
    pub fn add_uncontrollable(&self, pid: i32, pod: &str, why: ObstacleKind) {
        self.add(pid, pod, Err(why));
    }

    fn add(&self, pid: i32, pod: &str, open: Result<(OwnedFd, Vec<u32>), ObstacleKind>) {
        let end = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let process = Unhooked { pod: pod.to_owned(), end, descriptors: vec![3], open };
        let mut state = self.0.lock().unwrap();
        state.processes.insert((pid, 7), process);
        state.changed.insert((pid, 7));
    }

    /// A process has mapped a hook.
    pub fn map_hook(&self, pid: i32) {
        self.0.lock().unwrap().hooks.insert(pid);
    }

    /// Replaces the groups of a process; its descriptor stays.
    pub fn set_groups(&self, pid: i32, groups: &[u32]) {
        let mut state = self.0.lock().unwrap();
        state.processes.get_mut(&(pid, 7)).unwrap().open.as_mut().unwrap().1 = groups.to_vec();
    }

    /// A process has one more descriptor of the driver, without groups of its own.
    pub fn open_descriptor(&self, pid: i32) {
        let mut state = self.0.lock().unwrap();
        let state = &mut *state;
        let process = state.processes.get_mut(&(pid, 7)).unwrap();
        process.descriptors.push(3 + i32::try_from(process.descriptors.len()).unwrap());
        state.changed.insert((pid, 7));
    }

    /// Makes a process uncontrollable.
    pub fn set_uncontrollable(&self, pid: i32, why: ObstacleKind) {
        self.0.lock().unwrap().processes.get_mut(&(pid, 7)).unwrap().open = Err(why);
    }

    /// Ends a process.
    pub fn end_process(&self, pid: i32) {
        self.0.lock().unwrap().processes.remove(&(pid, 7)).unwrap().end.write(1).unwrap();
    }

    /// Makes every scan fail, or succeed again.
    pub fn set_failing(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    /// Sets the driver queries of one inspection of a process.
    pub fn set_queries(&self, pid: i32, queries: u32) {
        self.0.lock().unwrap().queries.insert(pid, queries);
    }

    /// Makes the continued search find these groups of a process that could not be controlled.
    pub fn find_groups(&self, pid: i32, groups: &[u32]) -> Descriptor {
        let descriptor = Descriptor::new();
        let copy = descriptor.sent.as_fd().try_clone_to_owned().unwrap();
        let mut state = self.0.lock().unwrap();
        state.processes.get_mut(&(pid, 7)).unwrap().open = Ok((copy, groups.to_vec()));
        state.found.insert((pid, 7));
        descriptor
    }

    /// Sets the result of the next ownership checks of a process.
    pub fn set_ownership(&self, pid: i32, owns: Result<bool, ObstacleKind>) {
        self.0.lock().unwrap().ownership.insert(pid, owns);
    }

    /// Sets the cost of the next ownership checks of a process.
    pub fn set_check_queries(&self, pid: i32, queries: u32) {
        self.0.lock().unwrap().check_queries.insert(pid, queries);
    }

    /// From now on a process maps another page than its grant page.
    pub fn replace_page(&self, pid: i32) {
        self.0.lock().unwrap().other_page.insert(pid);
    }

    /// The count of scans.
    pub fn scans(&self) -> usize {
        self.0.lock().unwrap().scans
    }

    /// The shortest time from one inspection to the next.
    pub fn between_inspections(&self) -> Option<Duration> {
        self.0.lock().unwrap().between_inspections
    }

    /// The count of searches, complete or not.
    pub fn searches(&self) -> usize {
        self.0.lock().unwrap().searches
    }

    /// The processes inspected since the last call.
    pub fn take_inspected(&self) -> Vec<i32> {
        let inspected = std::mem::take(&mut self.0.lock().unwrap().inspected);
        inspected.into_iter().map(|(pid, _)| pid).collect()
    }
}

impl ProcessDiscovery for FakeDiscovery {
    fn candidates(&mut self, scope: &Scope) -> io::Result<CandidateList> {
        let mut state = self.0.lock().unwrap();
        state.scans += 1;
        state.searches += 1;
        if state.fails {
            return Err(io::Error::other("/proc: too many open files"));
        }
        let in_pods = state.processes.iter().filter(|(_, process)| scope.pods.contains(&process.pod));
        let candidate = |(key, process): (&ProcessKey, &Unhooked)| Candidate {
            key: *key,
            command: "raw".into(),
            pod: PodCgroup { uid: process.pod.clone(), container: Some(container(&process.pod)) },
            pidfd: process.end.as_fd().try_clone_to_owned().unwrap(),
            descriptors: process.descriptors.clone(),
        };
        Ok(CandidateList { candidates: in_pods.map(candidate).collect(), ..CandidateList::default() })
    }

    fn changed(
        &mut self,
        _: &HashSet<ProcessKey>,
        requested: &HashSet<ProcessKey>,
        scope: &Scope,
    ) -> io::Result<Vec<Candidate>> {
        let scans = self.scans();
        let mut candidates = self.candidates(scope)?.candidates;
        self.0.lock().unwrap().scans = scans;
        let changed = std::mem::take(&mut self.0.lock().unwrap().changed);
        candidates.retain(|Candidate { key, .. }| requested.contains(key) || changed.contains(key));
        Ok(candidates)
    }

    fn maps_page(&mut self, process: ProcessKey, _: &GrantPageMapping) -> Option<bool> {
        Some(!self.0.lock().unwrap().other_page.contains(&process.0))
    }

    fn inspect(&mut self, candidate: &Candidate, _: Walk) -> Inspection {
        let mut state = self.0.lock().unwrap();
        state.inspected.push(candidate.key);
        if let Some(before) = state.last_inspection.replace(Instant::now()) {
            let between = before.elapsed();
            state.between_inspections =
                Some(state.between_inspections.map_or(between, |least| least.min(between)));
        }
        let queries = state.queries.get(&candidate.key.0).copied().unwrap_or(1);
        let result = match &state.processes[&candidate.key].open {
            Ok((descriptor, groups)) => Ok(vec![ControlDescriptor {
                descriptor: descriptor.try_clone().unwrap(),
                contexts: groups.iter().map(|group| context(*group)).collect(),
            }]),
            Err(why) => Err(obstacle(*why)),
        };
        Inspection { result, queries }
    }

    fn maps_hook(&mut self, process: ProcessKey) -> bool {
        self.0.lock().unwrap().hooks.contains(&process.0)
    }

    fn continue_search(&mut self, _: &[Candidate], _: u32) -> ContinuedSearch {
        ContinuedSearch { found: std::mem::take(&mut self.0.lock().unwrap().found), queries: 0 }
    }

    fn owns(&mut self, check: &OwnershipCheck) -> Ownership {
        let state = self.0.lock().unwrap();
        let owns = state.ownership.get(&check.key.0).copied().unwrap_or(Ok(true));
        let queries = state.check_queries.get(&check.key.0).copied().unwrap_or(1);
        Ownership { result: owns.map_err(obstacle), queries }
    }
}

fn obstacle(why: ObstacleKind) -> Obstacle {
    Obstacle { kind: why, text: "the test set this obstacle".into() }
}
