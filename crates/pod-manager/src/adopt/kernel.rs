//! The kernel's processes and the driver's groups.

use super::{Candidate, Obstacle, Scout, Way, Why};
use crate::peer::{KernelProc, ProcFs, command_in, start_in};
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use sluice_nvrm::outside::{self, Unreachable};
use sluice_sys::pidfd;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;

/// Looks between two at which all processes are looked at again: their cgroups may have changed, and their numbers may have been given
/// to others. In between only new numbers are.
const ALL_EVERY: u32 = 8;

/// Looks at /proc, and asks the driver. Needs the host's pid namespace, CAP_SYS_PTRACE, and for other users' processes
/// CAP_DAC_READ_SEARCH.
#[derive(Debug)]
pub struct KernelScout {
    simulated: bool,
    /// Groups of other GPUs are none of ours; `None`: all are.
    gpu_uuid: Option<String>,
    /// By number: whether it was in a pod when it was last looked at.
    in_pods: HashMap<i32, bool>,
    looks: u32,
}

impl KernelScout {
    /// For the groups of the GPU with this uuid as NVML spells it. An instance of a GPU (`MIG-…`) is not told from others: a pod has
    /// one. `simulated`: sockets of a simulator are ways to the driver too.
    #[must_use]
    pub fn new(gpu_uuid: &str, simulated: bool) -> Self {
        let gpu_uuid = gpu_uuid.starts_with("GPU-").then(|| gpu_uuid.to_owned());
        Self { simulated, gpu_uuid, in_pods: HashMap::new(), looks: 0 }
    }

    /// All process numbers; those that were in no pod a moment ago only from time to time.
    fn numbers(&mut self) -> Vec<i32> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let all: HashSet<i32> = entries.filter_map(number).collect();
        if self.looks.is_multiple_of(ALL_EVERY) {
            self.in_pods.clear();
        }
        self.looks = self.looks.wrapping_add(1);
        self.in_pods.retain(|number, _| all.contains(number));
        let mut numbers: Vec<i32> = all.into_iter().collect();
        numbers.retain(|number| self.in_pods.get(number).copied().unwrap_or(true));
        numbers.sort_unstable();
        numbers
    }

    fn candidate(&mut self, pid: i32, pods: &HashSet<String>) -> Option<Candidate> {
        let pod = pod_now(pid);
        self.in_pods.insert(pid, pod.is_some());
        pod.filter(|pod| pods.contains(&pod.uid))?;
        // From here on it is this process, or none: what is read under its number counts while the pidfd says that it lives.
        let process = pidfd::open(pid).ok()?;
        let stat = KernelProc.read(pid, "stat").ok()?;
        let pod = pod_now(pid).filter(|pod| pods.contains(&pod.uid))?;
        let descriptors = match outside::descriptors(pid, self.simulated) {
            Ok(descriptors) if descriptors.is_empty() => return None,
            Ok(descriptors) => descriptors,
            // To reach it will fail too, and say why.
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            Err(_) => return None,
        };
        let key = (pid, start_in(&stat)?);
        let command = command_in(&stat).to_owned();
        let lives = !pidfd::has_ended(process.as_fd());
        lives.then_some(Candidate { key, command, pod, pidfd: process, descriptors })
    }
}

fn pod_now(pid: i32) -> Option<PodCgroup> {
    pod_of(&KernelProc.read(pid, "cgroup").ok()?).ok()
}

impl Scout for KernelScout {
    fn candidates(&mut self, pods: &HashSet<String>) -> Vec<Candidate> {
        let numbers = self.numbers();
        numbers.into_iter().filter_map(|pid| self.candidate(pid, pods)).collect()
    }

    fn reach(&mut self, candidate: &Candidate) -> Result<Vec<Way>, Obstacle> {
        let pid = candidate.key.0;
        // Without an answer only the first clients of this boot are looked at.
        let newest = if self.simulated { None } else { Some(outside::newest_client()) };
        let known = newest.as_ref().and_then(|newest| newest.as_ref().ok()).copied();
        let ways = match (outside::ways(candidate.pidfd.as_fd(), pid, self.simulated, known), newest) {
            (Ok(ways), _) => ways,
            (Err(Unreachable::NoDriver(_)), _) => return Ok(Vec::new()),
            (Err(why @ Unreachable::NoGroups(_)), Some(Err(newest))) => {
                let text = format!("{why} (where to look cannot be told: {newest})");
                return Err(Why::NoGroups.because(text));
            }
            (Err(why), _) => return Err(obstacle(&why)),
        };
        let mut found = Vec::new();
        for mut way in ways {
            if let Some(uuid) = &self.gpu_uuid {
                way.keep_gpu(uuid).map_err(|error| Obstacle {
                    why: Why::Driver,
                    text: format!("process {pid}: which GPU its groups are on: {error}"),
                })?;
            }
            let (descriptor, contexts) = way.into_parts();
            if !contexts.is_empty() {
                found.push(Way { descriptor, contexts });
            }
        }
        Ok(found)
    }
}

fn obstacle(unreachable: &Unreachable) -> Obstacle {
    let denied = |why: &io::Error| why.kind() == io::ErrorKind::PermissionDenied;
    let why = match unreachable {
        Unreachable::Process { why, .. } if denied(why) => Why::NotPermitted,
        Unreachable::NoDriver(_) | Unreachable::NoGroups(_) => Why::NoGroups,
        Unreachable::TooMany(_) => Why::TooMany,
        Unreachable::Process { .. } | Unreachable::Groups { .. } => Why::Driver,
    };
    let mut text = unreachable.to_string();
    if let Unreachable::Process { why, .. } = unreachable {
        text = format!("{text}: {why}");
    }
    if why == Why::NotPermitted {
        text.push_str(" (the pod-manager needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)");
    }
    Obstacle { why, text }
}
