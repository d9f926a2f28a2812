//! Discovery through /proc and the driver.

use super::pod_processes::PodProcesses;
use super::{
    Candidate, ControlDescriptor, Inspection, Obstacle, ObstacleKind, OwnershipCheck, ProcessDiscovery,
    ProcessKey,
};
use crate::peer::{KernelProc, ProcFs, command_in, start_in};
use nix::errno::Errno;
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use sluice_nvrm::discovery::{
    self, DiscoveredDescriptor, DiscoveryError, GroupDiscovery, QueryBudget, ScannedProcess, WalkLimits,
};
use sluice_sys::pidfd;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsFd;

/// Driver queries that the continued search of one scan may make: an eighth of a second of a real driver, so that all numbers take eight
/// scans.
const CONTINUED_SEARCH: u32 = 1 << 17;

/// Finds unhooked processes through /proc, and their channel groups through the driver. It needs the host's pid namespace,
/// CAP_SYS_PTRACE, and for other users' processes CAP_DAC_READ_SEARCH.
#[derive(Debug)]
pub struct KernelDiscovery<P = KernelProc> {
    processes: PodProcesses<P>,
    simulated: bool,
    /// Groups of other GPUs are left out; `None`: no GPU is left out.
    gpu_uuid: Option<String>,
    /// Processes that had the driver open, or may have had. They stay candidates after they have closed it.
    opened: BTreeSet<ProcessKey>,
    groups: GroupDiscovery,
}

impl KernelDiscovery {
    /// Discovery for the GPU with this UUID as NVML spells it. For an instance of a GPU (`MIG-…`), groups of all GPUs count, because a
    /// pod with an instance has no other GPU. `simulated`: sockets of a simulator lead to the driver too.
    pub fn new(gpu_uuid: &str, simulated: bool) -> Self {
        let gpu_uuid = gpu_uuid.starts_with("GPU-").then(|| gpu_uuid.to_owned());
        Self::with_proc(KernelProc, gpu_uuid, simulated)
    }
}

impl<P: ProcFs> KernelDiscovery<P> {
    fn with_proc(proc: P, gpu_uuid: Option<String>, simulated: bool) -> Self {
        Self {
            processes: PodProcesses::new("/proc", proc),
            simulated,
            gpu_uuid,
            opened: BTreeSet::new(),
            groups: GroupDiscovery::new(simulated),
        }
    }

    /// The candidate with this process id. `None`: it is in none of these pods, never had the driver open, or has ended.
    /// Errors: the manager has no descriptors or memory left.
    fn candidate(&mut self, pid: i32, pods: &HashSet<String>) -> io::Result<Option<Candidate>> {
        let has_opened = self.opened.range((pid, 0)..=(pid, u64::MAX)).next().is_some();
        if !has_opened && !self.processes.may_have_opened(pid) {
            return Ok(None);
        }
        // What is read under this id belongs to the process of the pidfd if that process is alive afterwards.
        let Some(process) = unless_exhausted(pidfd::open(pid))? else { return Ok(None) };
        let Some(stat) = unless_exhausted(self.processes.files().read(pid, "stat"))? else { return Ok(None) };
        let pod = self.pod_now(pid)?.filter(|pod| pods.contains(&pod.uid));
        let (Some(pod), Some(start)) = (pod, start_in(&stat)) else { return Ok(None) };
        let key = (pid, start);
        let descriptors = match discovery::driver_descriptors(pid, self.simulated) {
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

impl<P: ProcFs> ProcessDiscovery for KernelDiscovery<P> {
    fn candidates(&mut self, pods: &HashSet<String>) -> io::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let pids = self.processes.in_pods(pods)?;
        self.opened.retain(|(pid, _)| pids.binary_search(pid).is_ok());
        for pid in pids {
            candidates.extend(self.candidate(pid, pods)?);
        }
        self.groups.begin_scan(&candidates.iter().map(|candidate| candidate.key).collect());
        Ok(candidates)
    }

    fn inspect(&mut self, candidate: &Candidate) -> Inspection {
        let limits = WalkLimits::default();
        let before = limits.queries.remaining();
        let found = self.groups.inspect(&scanned(candidate), self.gpu_uuid.as_deref(), &limits);
        let result = match found {
            Ok(found) => Ok(found.into_iter().filter_map(with_groups).collect()),
            Err(DiscoveryError::NoDriver(_)) => Ok(Vec::new()),
            Err(why) => Err(obstacle(&why)),
        };
        Inspection { result, queries: before - limits.queries.remaining() }
    }

    fn continue_search(&mut self, candidates: &[Candidate]) -> HashSet<ProcessKey> {
        let processes: Vec<ScannedProcess<'_>> = candidates.iter().map(scanned).collect();
        self.groups.continue_search(&processes, &QueryBudget::new(CONTINUED_SEARCH))
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
