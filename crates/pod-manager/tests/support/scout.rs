//! Programs without the hook, and who finds them, in the test's hands.

use super::driver::{Descriptor, context};
use super::peers::container;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_core::pod_cgroup::PodCgroup;
use sluice_pod_manager::adopt::{Candidate, Claim, Obstacle, ProcessKey, Scout, Way, Why};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// A program of a pod that uses the driver and tells nobody.
struct Program {
    pod: String,
    end: EventFd,
    /// What is behind its open control device; nothing if it cannot be reached.
    open: Result<(OwnedFd, Vec<u32>), Why>,
}

#[derive(Default)]
struct State {
    programs: BTreeMap<ProcessKey, Program>,
    looks: usize,
    reached: Vec<ProcessKey>,
    blind: bool,
    /// What looking into a process costs, and what was asked since that was taken.
    costs: BTreeMap<i32, u32>,
    asked: u32,
    /// Of whom more has been found since the last look.
    found: HashSet<ProcessKey>,
    /// Whose claims do not hold, or cannot be looked at.
    doubted: BTreeMap<i32, Result<bool, Why>>,
}

/// Finds what the test has started.
#[derive(Clone, Default)]
pub struct FakeScout(Arc<Mutex<State>>);

impl FakeScout {
    /// A program of this pod with these groups, over a descriptor whose other end comes back.
    pub fn program(&self, pid: i32, pod: &str, groups: &[u32]) -> Descriptor {
        let descriptor = Descriptor::new();
        let copy = descriptor.sent.as_fd().try_clone_to_owned().unwrap();
        self.add(pid, pod, Ok((copy, groups.to_vec())));
        descriptor
    }

    /// A program that cannot be reached.
    pub fn unreachable(&self, pid: i32, pod: &str, why: Why) {
        self.add(pid, pod, Err(why));
    }

    fn add(&self, pid: i32, pod: &str, open: Result<(OwnedFd, Vec<u32>), Why>) {
        let end = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let program = Program { pod: pod.to_owned(), end, open };
        self.0.lock().unwrap().programs.insert((pid, 7), program);
    }

    /// It has other groups from now on, over the same descriptor.
    pub fn regroup(&self, pid: i32, groups: &[u32]) {
        let mut state = self.0.lock().unwrap();
        state.programs.get_mut(&(pid, 7)).unwrap().open.as_mut().unwrap().1 = groups.to_vec();
    }

    /// It cannot be reached any more.
    pub fn shut(&self, pid: i32, why: Why) {
        self.0.lock().unwrap().programs.get_mut(&(pid, 7)).unwrap().open = Err(why);
    }

    /// It ends.
    pub fn die(&self, pid: i32) {
        self.0.lock().unwrap().programs.remove(&(pid, 7)).unwrap().end.write(1).unwrap();
    }

    /// Whether nobody can be looked for.
    pub fn blind(&self, blind: bool) {
        self.0.lock().unwrap().blind = blind;
    }

    /// Looking into it takes so many questions.
    pub fn costs(&self, pid: i32, questions: u32) {
        self.0.lock().unwrap().costs.insert(pid, questions);
    }

    /// Of a program that could not be reached these groups are found, by searching on.
    pub fn find(&self, pid: i32, groups: &[u32]) -> Descriptor {
        let descriptor = Descriptor::new();
        let copy = descriptor.sent.as_fd().try_clone_to_owned().unwrap();
        let mut state = self.0.lock().unwrap();
        state.programs.get_mut(&(pid, 7)).unwrap().open = Ok((copy, groups.to_vec()));
        state.found.insert((pid, 7));
        descriptor
    }

    /// What is to be said of a process's claims from now on; before that they hold.
    pub fn doubt(&self, pid: i32, holds: Result<bool, Why>) {
        self.0.lock().unwrap().doubted.insert(pid, holds);
    }

    /// Looks so far.
    pub fn looks(&self) -> usize {
        self.0.lock().unwrap().looks
    }

    /// The processes that were looked into since this was last asked.
    pub fn take_reached(&self) -> Vec<i32> {
        let reached = std::mem::take(&mut self.0.lock().unwrap().reached);
        reached.into_iter().map(|(pid, _)| pid).collect()
    }
}

impl Scout for FakeScout {
    fn candidates(&mut self, pods: &HashSet<String>) -> io::Result<Vec<Candidate>> {
        let mut state = self.0.lock().unwrap();
        state.looks += 1;
        if state.blind {
            return Err(io::Error::other("/proc: too many open files"));
        }
        let ours = state.programs.iter().filter(|(_, program)| pods.contains(&program.pod));
        let candidate = |(key, program): (&ProcessKey, &Program)| Candidate {
            key: *key,
            command: "raw".into(),
            pod: PodCgroup { uid: program.pod.clone(), container: Some(container(&program.pod)) },
            pidfd: program.end.as_fd().try_clone_to_owned().unwrap(),
            descriptors: vec![3],
        };
        Ok(ours.map(candidate).collect())
    }

    fn take_asked(&mut self) -> u32 {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn search(&mut self, _: &[Candidate]) -> HashSet<ProcessKey> {
        std::mem::take(&mut self.0.lock().unwrap().found)
    }

    fn proves(&mut self, claim: &Claim) -> Result<bool, Obstacle> {
        let holds = self.0.lock().unwrap().doubted.get(&claim.key.0).copied().unwrap_or(Ok(true));
        holds.map_err(|why| Obstacle { why, text: "there is something in the way".into() })
    }

    fn reach(&mut self, candidate: &Candidate) -> Result<Vec<Way>, Obstacle> {
        let mut state = self.0.lock().unwrap();
        state.reached.push(candidate.key);
        state.asked += state.costs.get(&candidate.key.0).copied().unwrap_or(1);
        match &state.programs[&candidate.key].open {
            Ok((descriptor, groups)) => Ok(vec![Way {
                descriptor: descriptor.try_clone().unwrap(),
                contexts: groups.iter().map(|group| context(*group)).collect(),
            }]),
            Err(why) => Err(Obstacle { why: *why, text: "there is something in the way".into() }),
        }
    }
}
