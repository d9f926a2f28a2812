//! The kernel's processes and the driver's groups.

use super::processes::Processes;
use super::{Candidate, Claim, Obstacle, ProcessKey, Scout, Way, Why};
use crate::peer::{KernelProc, ProcFs, command_in, start_in};
use nix::errno::Errno;
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use sluice_nvrm::outside::{self, Limits, Process, Questions, Searcher, Unreachable};
use sluice_sys::pidfd;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsFd;

/// Looks at /proc, and asks the driver. Needs the host's pid namespace, CAP_SYS_PTRACE, and for other users' processes
/// CAP_DAC_READ_SEARCH.
#[derive(Debug)]
pub struct KernelScout<P = KernelProc> {
    processes: Processes<P>,
    simulated: bool,
    /// Groups of other GPUs are none of ours; `None`: all are.
    gpu_uuid: Option<String>,
    /// Processes that had the driver open at some time, or may have had: of those it matters too that they have closed it.
    opened: BTreeSet<ProcessKey>,
    searcher: Searcher,
    /// Questions asked about processes that were looked into.
    asked: u32,
}

/// Numbers of clients that are asked for per look, beside those of processes that are looked into: an eighth of a second of a real
/// driver's time, so all numbers take eight looks.
const SEARCH: u32 = 1 << 17;

impl KernelScout {
    /// For the groups of the GPU with this uuid as NVML spells it. An instance of a GPU (`MIG-…`) is not told from others: a pod has
    /// one. `simulated`: sockets of a simulator are ways to the driver too.
    #[must_use]
    pub fn new(gpu_uuid: &str, simulated: bool) -> Self {
        let gpu_uuid = gpu_uuid.starts_with("GPU-").then(|| gpu_uuid.to_owned());
        Self::over(KernelProc, gpu_uuid, simulated)
    }
}

impl<P: ProcFs> KernelScout<P> {
    fn over(proc: P, gpu_uuid: Option<String>, simulated: bool) -> Self {
        Self {
            processes: Processes::new("/proc", proc),
            simulated,
            gpu_uuid,
            opened: BTreeSet::new(),
            searcher: Searcher::new(simulated),
            asked: 0,
        }
    }

    /// `None`: it is in none of these pods, never had the driver open, or has ended.
    ///
    /// # Errors
    /// It cannot be told, for want of descriptors or memory of ours.
    fn candidate(&mut self, pid: i32, pods: &HashSet<String>) -> io::Result<Option<Candidate>> {
        let has_opened = self.opened.range((pid, 0)..=(pid, u64::MAX)).next().is_some();
        if !has_opened && !self.processes.may_have_opened(pid) {
            return Ok(None);
        }
        // From here on it is this process, or none: what is read under its number counts while the pidfd says that it lives.
        let Some(process) = its(pidfd::open(pid))? else { return Ok(None) };
        let Some(stat) = its(self.processes.files().read(pid, "stat"))? else { return Ok(None) };
        let pod = self.pod_now(pid)?.filter(|pod| pods.contains(&pod.uid));
        let (Some(pod), Some(start)) = (pod, start_in(&stat)) else { return Ok(None) };
        let key = (pid, start);
        let descriptors = match outside::descriptors(pid, self.simulated) {
            Ok(descriptors) if descriptors.is_empty() && !self.opened.contains(&key) => return Ok(None),
            Ok(descriptors) => descriptors,
            // To reach it will fail too, and say why.
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                self.opened.insert(key);
                Vec::new()
            }
            Err(why) => return its(Err(why)),
        };
        let command = command_in(&stat).to_owned();
        let lives = !pidfd::has_ended(process.as_fd());
        if lives && !descriptors.is_empty() {
            self.opened.insert(key);
        }
        Ok(lives.then_some(Candidate { key, command, pod, pidfd: process, descriptors }))
    }

    fn pod_now(&mut self, pid: i32) -> io::Result<Option<PodCgroup>> {
        Ok(its(self.processes.files().read(pid, "cgroup"))?.and_then(|text| pod_of(&text).ok()))
    }
}

/// What was asked of a process, if it was answered; an error only if that was for want of something of ours.
pub(super) fn its<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    let of_ours = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(why) if of_ours.contains(&why.raw_os_error()) => Err(why),
        Err(_) => Ok(None),
    }
}

impl<P: ProcFs> Scout for KernelScout<P> {
    fn candidates(&mut self, pods: &HashSet<String>) -> io::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        let numbers = self.processes.in_pods(pods)?;
        self.opened.retain(|(number, _)| numbers.binary_search(number).is_ok());
        for pid in numbers {
            candidates.extend(self.candidate(pid, pods)?);
        }
        self.searcher.begin(&candidates.iter().map(|candidate| candidate.key).collect());
        Ok(candidates)
    }

    fn reach(&mut self, candidate: &Candidate) -> Result<Vec<Way>, Obstacle> {
        let limits = Limits::default();
        let most = limits.questions.left();
        let looked = self.searcher.look(&searched(candidate), self.gpu_uuid.as_deref(), &limits);
        self.asked = self.asked.saturating_add(most - limits.questions.left());
        match looked {
            Ok(ways) => Ok(ways.into_iter().filter_map(with_groups).collect()),
            Err(Unreachable::NoDriver(_)) => Ok(Vec::new()),
            Err(why) => Err(obstacle(&why)),
        }
    }

    fn proves(&mut self, claim: &Claim) -> Result<bool, Obstacle> {
        let whom = Process { key: claim.key, process: claim.pidfd.as_fd(), crowd: &claim.pod };
        for (descriptor, clients) in &claim.ways {
            let is_its = outside::is_its_own(&whom, descriptor.as_fd(), clients, self.simulated);
            if !is_its.map_err(|why| obstacle(&why))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_asked(&mut self) -> u32 {
        std::mem::take(&mut self.asked)
    }

    fn search(&mut self, candidates: &[Candidate]) -> HashSet<ProcessKey> {
        let processes: Vec<Process<'_>> = candidates.iter().map(searched).collect();
        self.searcher.search(&processes, &Questions::new(SEARCH))
    }
}

/// Only processes of one pod can share an open file.
fn searched(candidate: &Candidate) -> Process<'_> {
    let Candidate { key, pidfd, pod, .. } = candidate;
    Process { key: *key, process: pidfd.as_fd(), crowd: &pod.uid }
}

/// Those without lead to other GPUs.
fn with_groups(way: outside::Way) -> Option<Way> {
    let (descriptor, contexts) = way.into_parts();
    (!contexts.is_empty()).then_some(Way { descriptor, contexts })
}

fn obstacle(unreachable: &Unreachable) -> Obstacle {
    let denied = |why: &io::Error| why.kind() == io::ErrorKind::PermissionDenied;
    let why = match unreachable {
        Unreachable::Process { why, .. } if denied(why) => Why::NotPermitted,
        Unreachable::NoDriver(_) | Unreachable::NoGroups(_) | Unreachable::NotYet(_) => Why::NoGroups,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    const POD: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// One process is in a pod, whatever the kernel says.
    struct InPod(i32);

    impl ProcFs for InPod {
        fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
            match file {
                "cgroup" if pid == self.0 => {
                    Ok(format!("0::/kubepods/besteffort/pod{POD}/{}\n", "a".repeat(64)))
                }
                "cgroup" => Ok("0::/\n".into()),
                file => KernelProc.read(pid, file),
            }
        }
    }

    #[test]
    fn who_has_closed_the_driver_is_there_still_and_has_none() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "read go; exec </dev/null; echo closed; exec sleep 1000"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut scout = KernelScout::over(InPod(pid), None, true);
        let pods = HashSet::from([POD.to_owned()]);
        let first = scout.candidates(&pods).unwrap();
        writeln!(ours, "go").unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let second = scout.candidates(&pods).unwrap();
        let reached = second.first().map(|candidate| scout.reach(candidate).map(|ways| ways.len()));
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = |found: &[Candidate]| found.iter().map(|its| its.descriptors.clone()).collect::<Vec<_>>();
        assert_eq!((seen(&first), seen(&second)), (vec![vec![0]], vec![vec![]]));
        assert_eq!(reached, Some(Ok(0)));
        assert!(scout.candidates(&pods).unwrap().is_empty(), "it has ended");
    }
}
