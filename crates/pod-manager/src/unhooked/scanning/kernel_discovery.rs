//! Discovery through /proc and the driver.

use super::descriptor_lists::DescriptorLists;
use super::mappings;
use super::pod_processes::PodProcesses;
use super::turns::SearchTurns;
use super::{
    Candidate, CandidateList, ContinuedSearch, ControlDescriptor, GrantPageMapping, Inspection, Obstacle,
    ObstacleKind, Ownership, OwnershipCheck, ProcessDiscovery, ProcessKey, Scope, Walk,
};
use crate::peer::{KernelProc, ProcFs, command_in, start_in};
use nix::errno::Errno;
use sluice_core::pod_cgroup::PodCgroup;
use sluice_nvrm::discovery::{
    self, DiscoveredDescriptor, DiscoveryError, GroupDiscovery, OWNERSHIP_QUERIES, QueryBudget,
    ScannedProcess, WalkLimits,
};
use sluice_sys::pidfd;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two complete searches for processes that were not requested. The next searches look at the others.
const CHANGED_WITHIN: Duration = Duration::from_millis(2);

/// A short walk ends after so many handles without an object. libcuda numbers its objects one by one, and a new driver library's first
/// context has its groups among the first hundred.
const SHORT_GAP: u32 = 512;

/// Client numbers that the search on a new file of an attached process queries beyond its client: the process has announced its clients.
const NUMBERS_AFTER_ANNOUNCED: u64 = 512;

/// A query of the driver, with the work around it. On an H200, 4,300 queries a second took about 1 % of a core.
const DRIVER_QUERY_US: u32 = 3;
/// A query of the simulator makes a pair of sockets and waits for its daemon: 20 to 40 µs.
const SIMULATOR_QUERY_US: u32 = 35;
/// The gap of a short walk on the simulator. Its contexts are 64 handles apart, so a walk goes on over two that were freed.
const SIMULATOR_SHORT_GAP: u32 = 160;

/// Finds unhooked processes through /proc, and their channel groups through the driver. It needs the host's pid namespace,
/// CAP_SYS_PTRACE, and for other users' processes CAP_DAC_READ_SEARCH.
#[derive(Debug)]
pub struct KernelDiscovery<P = KernelProc> {
    processes: PodProcesses<P>,
    simulated: bool,
    /// Groups of other GPUs are left out; `None`: no GPU is left out.
    gpu_uuid: Option<String>,
    /// While this file exists, no process is found: the operator has switched Sluice off.
    switch: Option<PathBuf>,
    /// Processes that had the driver open, or may have had. They stay candidates after they have closed it.
    opened: BTreeSet<ProcessKey>,
    /// Numbers of descriptors when [`ProcessDiscovery::changed`] last read them.
    counts: HashMap<ProcessKey, u64>,
    turns: SearchTurns,
    lists: DescriptorLists,
    /// The clock of `lists` began at this time.
    began: Instant,
    groups: GroupDiscovery,
}

impl KernelDiscovery {
    /// Discovery for the GPU with this UUID as NVML spells it. For an instance of a GPU (`MIG-…`), groups of all GPUs count, because a
    /// pod with an instance has no other GPU. `simulated`: sockets of a simulator lead to the driver too.
    /// While the file `switch` exists, no process is found.
    pub fn new(gpu_uuid: &str, simulated: bool, switch: Option<PathBuf>) -> Self {
        let gpu_uuid = gpu_uuid.starts_with("GPU-").then(|| gpu_uuid.to_owned());
        Self { switch, ..Self::with_proc(KernelProc, gpu_uuid, simulated) }
    }
}

impl<P: ProcFs> KernelDiscovery<P> {
    fn with_proc(proc: P, gpu_uuid: Option<String>, simulated: bool) -> Self {
        Self {
            processes: PodProcesses::new("/proc", proc),
            simulated,
            gpu_uuid,
            switch: None,
            opened: BTreeSet::new(),
            counts: HashMap::new(),
            turns: SearchTurns::default(),
            lists: DescriptorLists::default(),
            began: Instant::now(),
            groups: GroupDiscovery::new(simulated),
        }
    }

    /// The candidate with this process id. `None`: it is not in this scope, never had the driver open, or has ended.
    /// Errors: the manager has no descriptors or memory left.
    fn candidate(&mut self, pid: i32, scope: &Scope) -> io::Result<Option<Candidate>> {
        // What is read under this id belongs to the process of the pidfd if that process is alive afterwards.
        let Some(process) = unless_exhausted(pidfd::open(pid))? else { return Ok(None) };
        let Some(stat) = unless_exhausted(self.processes.files().read(pid, "stat"))? else { return Ok(None) };
        let Some(key) = start_in(&stat).map(|start| (pid, start)) else { return Ok(None) };
        let pod = match scope.named.get(&key) {
            Some(name) => Some(PodCgroup { uid: name.clone(), container: None }),
            None => self.processes.pod_now(pid)?.filter(|pod| scope.pods.contains(&pod.uid)),
        };
        let Some(pod) = pod else { return Ok(None) };
        let descriptors = match self.descriptors(key, &pod.uid) {
            // The inspection reports it as an obstacle. Without descriptors it follows at once, as they have changed.
            Ok(_) if self.excess(key).is_some() => {
                self.opened.insert(key);
                Vec::new()
            }
            Ok(descriptors) if descriptors.is_empty() && !self.opened.contains(&key) => return Ok(None),
            Ok(descriptors) => descriptors,
            // The inspection fails in the same way, and its obstacle is reported.
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                self.opened.insert(key);
                Vec::new()
            }
            Err(why) => return unless_exhausted(Err(why)),
        };
        let command = command_in(&stat).to_owned();
        let is_alive = !pidfd::has_ended(process.as_fd());
        if is_alive && !descriptors.is_empty() {
            self.opened.insert(key);
        }
        Ok(is_alive.then_some(Candidate { key, command, pod, pidfd: process, descriptors }))
    }

    /// The descriptors of a process that may lead to the driver.
    fn descriptors(&mut self, key: ProcessKey, pod: &str) -> io::Result<Vec<RawFd>> {
        let (count, now, simulated) = (self.processes.descriptor_count(key.0), self.now(), self.simulated);
        let mut list = |from, most| discovery::driver_descriptors_from(key.0, simulated, from, most);
        let listed = self.lists.descriptors(key, pod, count, now, &mut list)?;
        if self.lists.is_unfinished(key, count) {
            self.processes.forget_count(key.0);
            self.counts.remove(&key);
        }
        Ok(listed)
    }

    /// Why a process has too many descriptors.
    fn excess(&self, key: ProcessKey) -> Option<String> {
        self.lists.excess(key, self.processes.descriptor_count(key.0), self.now())
    }

    /// Nanoseconds since this discovery was made.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The processes that had this id and the driver open.
    fn opened_by(&self, pid: i32) -> impl Iterator<Item = &ProcessKey> {
        self.opened.range((pid, 0)..=(pid, u64::MAX))
    }
}

/// The result of reading a process's file, or `None` if the process does not have it.
/// Errors: the manager has no descriptors or memory left, so nothing is known about the process.
pub(super) fn unless_exhausted<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    let exhausted = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
    match result {
        Ok(value) => Ok(Some(value)),
        Err(why) if exhausted.contains(&why.raw_os_error()) => Err(why),
        Err(_) => Ok(None),
    }
}

impl<P> KernelDiscovery<P> {
    /// Whether the operator has switched Sluice off.
    fn is_switched_off(&self) -> bool {
        self.switch.as_ref().is_some_and(|switch| switch.exists())
    }
}

impl<P: ProcFs> ProcessDiscovery for KernelDiscovery<P> {
    fn candidates(&mut self, scope: &Scope) -> io::Result<CandidateList> {
        let mut list = CandidateList::default();
        if self.is_switched_off() {
            return Ok(list);
        }
        let mut pids =
            if scope.pods.is_empty() { Vec::new() } else { self.processes.in_pods(&scope.pods)? };
        pids.extend(scope.named.keys().map(|(pid, _)| *pid));
        pids.sort_unstable();
        pids.dedup();
        let is_present = |(pid, _): &ProcessKey| pids.binary_search(pid).is_ok();
        self.opened.retain(is_present);
        let pods = scope.pods.iter().chain(scope.named.values()).map(String::as_str).collect();
        let now = self.now();
        self.lists.begin_scan(is_present, &pods, now);
        self.lists.order(&mut pids);
        pids.retain(|pid| self.opened_by(*pid).next().is_some() || self.processes.may_have_opened(*pid));
        let with_pods: Vec<_> =
            pids.iter().map(|pid| (*pid, self.processes.pod(*pid).unwrap_or_default())).collect();
        let (now, later) = self.turns.divide(&with_pods);
        for pid in now {
            list.candidates.extend(self.candidate(pid, scope)?);
        }
        for pid in later {
            self.processes.forget_count(pid);
            list.postponed.extend(self.opened_by(pid));
        }
        let found = list.candidates.iter().map(|candidate| candidate.key);
        self.groups.begin_scan(&found.chain(list.postponed.iter().copied()).collect());
        Ok(list)
    }

    fn changed(
        &mut self,
        among: &HashSet<ProcessKey>,
        requested: &HashSet<ProcessKey>,
        scope: &Scope,
    ) -> io::Result<Vec<Candidate>> {
        if self.is_switched_off() {
            return Ok(Vec::new());
        }
        let mut pids = self.processes.changed_in_pods(&scope.pods)?;
        self.counts.retain(|key, _| among.contains(key));
        for key in among.union(requested) {
            let count = self.processes.descriptor_count(key.0);
            if self.counts.insert(*key, count) != Some(count) || requested.contains(key) {
                pids.push(key.0);
            }
        }
        pids.sort_unstable();
        pids.dedup();
        self.lists.order(&mut pids);
        let requested: HashSet<i32> = requested.iter().map(|(pid, _)| *pid).collect();
        let (mut candidates, begun) = (Vec::new(), Instant::now());
        for pid in pids {
            if requested.contains(&pid) || begun.elapsed() < CHANGED_WITHIN {
                candidates.extend(self.candidate(pid, scope)?);
            } else {
                self.processes.forget_count(pid);
                self.counts.retain(|(of, _), _| *of != pid);
            }
        }
        self.groups.continue_scan();
        Ok(candidates)
    }

    fn inspect(&mut self, candidate: &Candidate, walk: Walk) -> Inspection {
        if let Some(why) = self.excess(candidate.key) {
            return Inspection { result: Err(ObstacleKind::TooMany.because(why)), queries: 0 };
        }
        let mut limits = WalkLimits::default();
        // A query of a simulator costs much more, and it leaves no long gaps.
        limits.gap = match (walk, self.simulated) {
            (Walk::Short, true) => SIMULATOR_SHORT_GAP,
            (Walk::Short, false) | (Walk::Complete, true) => SHORT_GAP,
            (Walk::Complete, false) => limits.gap,
        };
        if walk == Walk::Short {
            limits.numbers_after_client = NUMBERS_AFTER_ANNOUNCED;
        }
        let before = limits.queries.remaining();
        let (process, gpu) = (scanned(candidate), self.gpu_uuid.as_deref());
        let found = self.groups.inspect(&process, &candidate.descriptors, gpu, &limits);
        let result = match found {
            Ok(found) => Ok(found.into_iter().filter_map(with_groups).collect()),
            Err(DiscoveryError::NoDriver(_)) => Ok(Vec::new()),
            Err(why) => Err(obstacle(&why)),
        };
        Inspection { result, queries: before - limits.queries.remaining() }
    }

    fn maps_page(&mut self, (pid, start): ProcessKey, page: &GrantPageMapping) -> Option<bool> {
        let files = self.processes.files();
        let maps = files.read(pid, "maps").ok()?;
        // What was read is the process's if the pid was not given to another one meanwhile.
        let is_same = files.read(pid, "stat").ok().and_then(|stat| start_in(&stat)) == Some(start);
        (is_same && !maps.is_empty()).then(|| mappings::maps_page(&maps, page))
    }

    fn maps_hook(&mut self, (pid, _): ProcessKey) -> bool {
        mappings::maps_hook(pid).unwrap_or(false)
    }

    fn continue_search(&mut self, candidates: &[Candidate], queries: u32) -> ContinuedSearch {
        let processes: Vec<ScannedProcess<'_>> = candidates.iter().map(scanned).collect();
        let budget = QueryBudget::new(queries);
        let found = self.groups.continue_search(&processes, &budget);
        ContinuedSearch { found, queries: queries - budget.remaining() }
    }

    fn query_us(&self) -> u32 {
        if self.simulated { SIMULATOR_QUERY_US } else { DRIVER_QUERY_US }
    }

    fn owns(&mut self, check: &OwnershipCheck) -> Ownership {
        let process = ScannedProcess { key: check.key, pidfd: check.pidfd.as_fd(), pod: &check.pod };
        let queries = QueryBudget::new(OWNERSHIP_QUERIES);
        let owns = discovery::owns_clients(&process, &check.descriptors, self.simulated, &queries);
        let queries = OWNERSHIP_QUERIES - queries.remaining();
        Ownership { result: owns.map_err(|why| obstacle(&why)), queries }
    }
}

fn scanned(candidate: &Candidate) -> ScannedProcess<'_> {
    let Candidate { key, pidfd, pod, .. } = candidate;
    ScannedProcess { key: *key, pidfd: pidfd.as_fd(), pod: &pod.uid }
}

/// The descriptor, unless it leads only to groups of other GPUs.
fn with_groups(found: DiscoveredDescriptor) -> Option<ControlDescriptor> {
    let (descriptor, contexts) = found.into_parts();
    (!contexts.is_empty()).then_some(ControlDescriptor { descriptor, contexts })
}

fn obstacle(error: &DiscoveryError) -> Obstacle {
    let is_denied = |why: &io::Error| why.kind() == io::ErrorKind::PermissionDenied;
    let why = match error {
        DiscoveryError::NoAccess { why, .. } if is_denied(why) => ObstacleKind::NotPermitted,
        DiscoveryError::NoDriver(_) | DiscoveryError::NoGroups(_) | DiscoveryError::SearchIncomplete(_) => {
            ObstacleKind::NoGroups
        }
        DiscoveryError::TooManyFiles(_) | DiscoveryError::TooManyDescriptors(_) => ObstacleKind::TooMany,
        DiscoveryError::NoAccess { .. } | DiscoveryError::Groups { .. } => ObstacleKind::Driver,
    };
    let mut text = error.to_string();
    if why == ObstacleKind::NotPermitted {
        text.push_str(" (the pod-manager needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)");
    }
    why.because(text)
}

#[cfg(test)]
mod tests;
