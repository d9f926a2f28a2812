//! Discovery through /proc and the driver.

use super::pod_processes::PodProcesses;
use super::{
    Candidate, ControlDescriptor, GrantPageMapping, Inspection, Obstacle, ObstacleKind, OwnershipCheck,
    ProcessDiscovery, ProcessKey, Scope, Walk,
};
use crate::peer::{KernelProc, ProcFs, command_in, start_in};
use nix::errno::Errno;
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use sluice_nvrm::discovery::{
    self, DiscoveredDescriptor, DiscoveryError, GroupDiscovery, QueryBudget, ScannedProcess, WalkLimits,
};
use sluice_sys::pidfd;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time of one search in which descriptors of known processes are listed: a process decides how many it has. The others are listed by the
/// next searches; until then they count as unchanged. Four searches a second take 0.6 % of a processor at most.
const LISTED_WITHIN: Duration = Duration::from_micros(1_500);

/// Whether the descriptors of a known process are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Always,
    /// If the search has time left; else they are those of the last search.
    WithinTime,
}

/// A short walk ends after so many handles without an object. libcuda numbers its objects one by one, and a new driver library's first
/// context has its groups among the first hundred.
const SHORT_GAP: u32 = 512;

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
    /// The descriptors of each known process that may lead to the driver, when they were last listed.
    listed: HashMap<ProcessKey, Vec<RawFd>>,
    /// The process that was listed last, and when the current search began.
    last_listed: i32,
    search_began: Instant,
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
            listed: HashMap::new(),
            last_listed: 0,
            search_began: Instant::now(),
            groups: GroupDiscovery::new(simulated),
        }
    }

    /// The candidate with this process id. `None`: it is not in this scope, never had the driver open, or has ended.
    /// Errors: the manager has no descriptors or memory left.
    fn candidate(&mut self, pid: i32, scope: &Scope, listing: Listing) -> io::Result<Option<Candidate>> {
        let has_opened = self.opened.range((pid, 0)..=(pid, u64::MAX)).next().is_some();
        if !has_opened && !self.processes.may_have_opened(pid) {
            return Ok(None);
        }
        // What is read under this id belongs to the process of the pidfd if that process is alive afterwards.
        let Some(process) = unless_exhausted(pidfd::open(pid))? else { return Ok(None) };
        let Some(stat) = unless_exhausted(self.processes.files().read(pid, "stat"))? else { return Ok(None) };
        let Some(key) = start_in(&stat).map(|start| (pid, start)) else { return Ok(None) };
        let pod = match scope.named.get(&key) {
            Some(name) => Some(PodCgroup { uid: name.clone(), container: None }),
            None => self.pod_now(pid)?.filter(|pod| scope.pods.contains(&pod.uid)),
        };
        let Some(pod) = pod else { return Ok(None) };
        let descriptors = match self.descriptors(key, listing) {
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
    fn descriptors(&mut self, key: ProcessKey, listing: Listing) -> io::Result<Vec<RawFd>> {
        if listing == Listing::WithinTime
            && self.search_began.elapsed() >= LISTED_WITHIN
            && let Some(listed) = self.listed.get(&key)
        {
            return Ok(listed.clone());
        }
        self.last_listed = key.0;
        let descriptors = discovery::driver_descriptors(key.0, self.simulated)?;
        self.listed.insert(key, descriptors.clone());
        Ok(descriptors)
    }

    fn pod_now(&mut self, pid: i32) -> io::Result<Option<PodCgroup>> {
        let cgroup = unless_exhausted(self.processes.files().read(pid, "cgroup"))?;
        Ok(cgroup.and_then(|text| pod_of(&text).ok()))
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
    fn candidates(&mut self, scope: &Scope) -> io::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        if self.is_switched_off() {
            return Ok(candidates);
        }
        let mut pids =
            if scope.pods.is_empty() { Vec::new() } else { self.processes.in_pods(&scope.pods)? };
        pids.extend(scope.named.keys().map(|(pid, _)| *pid));
        pids.sort_unstable();
        pids.dedup();
        self.search_began = Instant::now();
        self.listed.retain(|(pid, _), _| pids.binary_search(pid).is_ok());
        self.opened.retain(|(pid, _)| pids.binary_search(pid).is_ok());
        // The processes that the last search had no time for come first.
        let next = pids.partition_point(|pid| *pid <= self.last_listed);
        pids.rotate_left(next);
        for pid in pids {
            candidates.extend(self.candidate(pid, scope, Listing::WithinTime)?);
        }
        self.groups.begin_scan(&candidates.iter().map(|candidate| candidate.key).collect());
        Ok(candidates)
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
        let mut candidates = Vec::new();
        self.counts.retain(|key, _| among.contains(key));
        self.search_began = Instant::now();
        let mut keys: Vec<ProcessKey> = among.union(requested).copied().collect();
        keys.sort_unstable();
        let next = keys.partition_point(|(pid, _)| *pid <= self.last_listed);
        keys.rotate_left(next);
        for key in &keys {
            let is_requested = requested.contains(key);
            if !is_requested && self.search_began.elapsed() >= LISTED_WITHIN {
                continue;
            }
            let count = self.processes.descriptor_count(key.0);
            let is_unchanged = self.counts.insert(*key, count) == Some(count);
            if is_unchanged && !is_requested {
                continue;
            }
            candidates.extend(
                self.candidate(key.0, scope, Listing::Always)?.filter(|candidate| candidate.key == *key),
            );
        }
        self.groups.continue_scan();
        Ok(candidates)
    }

    fn inspect(&mut self, candidate: &Candidate, walk: Walk) -> Inspection {
        let mut limits = WalkLimits::default();
        // One query takes a simulator 20 times as long as a real driver, and it leaves no gaps.
        if walk == Walk::Short || self.simulated {
            limits.gap = SHORT_GAP;
        }
        let before = limits.queries.remaining();
        let found = self.groups.inspect(&scanned(candidate), self.gpu_uuid.as_deref(), &limits);
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
        (is_same && !maps.is_empty()).then(|| maps_page(&maps, page))
    }

    fn continue_search(&mut self, candidates: &[Candidate], queries: u32) -> HashSet<ProcessKey> {
        let processes: Vec<ScannedProcess<'_>> = candidates.iter().map(scanned).collect();
        self.groups.continue_search(&processes, &QueryBudget::new(queries))
    }

    fn owns(&mut self, check: &OwnershipCheck) -> Result<bool, Obstacle> {
        let process = ScannedProcess { key: check.key, pidfd: check.pidfd.as_fd(), pod: &check.pod };
        for (descriptor, clients) in &check.descriptors {
            let owns = discovery::owns_clients(&process, descriptor.as_fd(), clients, self.simulated);
            if !owns.map_err(|why| obstacle(&why))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a file with this inode is mapped at the page's address, by the text of /proc/PID/maps.
fn maps_page(maps: &str, page: &GrantPageMapping) -> bool {
    let is_here = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (begin, _) = words.next()?.split_once('-')?;
        let inode = words.nth(3)?;
        Some(u64::from_str_radix(begin, 16).ok()? == page.address && inode.parse() == Ok(page.inode))
    };
    maps.lines().any(|line| is_here(line) == Some(true))
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
        DiscoveryError::TooManyFiles(_) => ObstacleKind::TooMany,
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
