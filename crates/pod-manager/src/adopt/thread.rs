//! The thread that looks.

use super::claim::{Claim, Proof};
use super::look::{Look, Reached, Sighted, Unreached};
use super::purse::Purse;
use super::watch::Watch;
use super::{Candidate, ProcessKey, Scout, Way};
use crate::control::{Control, Remote};
use sluice_core::ProcessId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;

/// What the thread is to do.
#[derive(Debug)]
enum Task {
    Look(Look),
    Prove { process: ProcessId, serial: u64, claim: Claim },
}

/// The sending end; the thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Adopter(Sender<Task>);

impl Adopter {
    /// Starts the thread, which answers each look to `remote`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(scout: Box<dyn Scout>, remote: Remote) -> io::Result<Self> {
        let (sender, tasks) = channel();
        let work = Work { scout, watch: Watch::default(), purse: Purse::default(), remote, failing: false };
        std::thread::Builder::new().name("sluice-adopt".into()).spawn(move || work.serve(&tasks))?;
        Ok(Self(sender))
    }

    /// Has it look around. One look at a time: the next one when the last was answered.
    pub(crate) fn look(&self, look: Look) {
        // The thread ends no earlier than this.
        let _ = self.0.send(Task::Look(look));
    }

    /// Has it found out whether a claim is true.
    pub(crate) fn prove(&self, process: ProcessId, serial: u64, claim: Claim) {
        let _ = self.0.send(Task::Prove { process, serial, claim });
    }
}

struct Work {
    scout: Box<dyn Scout>,
    watch: Watch,
    purse: Purse,
    remote: Remote,
    /// The last look could not be had.
    failing: bool,
}

impl Work {
    fn serve(mut self, tasks: &Receiver<Task>) {
        for task in tasks {
            let answer = match task {
                Task::Look(look) => Control::Sighted(self.look(&look)),
                Task::Prove { process, serial, claim } => {
                    Control::Proven(Proof { process, serial, holds: self.scout.proves(&claim) })
                }
            };
            self.remote.send(answer);
        }
    }

    fn look(&mut self, look: &Look) -> Sighted {
        let mut candidates = match self.scout.candidates(&look.pods) {
            Ok(candidates) => candidates,
            Err(why) => {
                if !std::mem::replace(&mut self.failing, true) {
                    warn!("cannot look for programs without the hook: {why}");
                }
                return Sighted::default();
            }
        };
        self.failing = false;
        candidates.retain(|candidate| !look.attached.contains(&candidate.key));
        let present = candidates.iter().map(|candidate| candidate.key).collect();
        self.watch.retain(&present);
        self.purse.fill(&candidates.iter().map(|candidate| candidate.pod.uid.as_str()).collect());
        let mut sighted = Sighted { present: Some(present), ..Sighted::default() };
        let mut reached = self.reach_due(&candidates, look.now, &look.again);
        // Whoever was not found at once, and is now, is reached within this look.
        let found = self.scout.search(&candidates);
        if !found.is_empty() {
            found.iter().for_each(|key| self.watch.hurry(*key, look.now));
            reached.extend(self.reach_due(&candidates, look.now, &HashSet::new()));
        }
        for candidate in candidates {
            let obstacle = self.watch.obstacle(candidate.key).cloned();
            let Candidate { key, command, pod, pidfd, .. } = candidate;
            match (reached.remove(&key), obstacle) {
                (Some(ways), _) => sighted.reached.push(Reached { key, command, pod, pidfd, ways }),
                (None, Some(obstacle)) => {
                    sighted.unreached.push(Unreached { key, command, pod, pidfd, obstacle });
                }
                (None, None) => {}
            }
        }
        sighted
    }

    /// Looks into those for whom it is time, who has waited longest first; those of a pod that has asked enough wait for the next look.
    fn reach_due(
        &mut self,
        candidates: &[Candidate],
        now: u64,
        again: &HashSet<ProcessKey>,
    ) -> HashMap<ProcessKey, Vec<Way>> {
        let mut due: Vec<(u64, &Candidate)> = Vec::new();
        for candidate in candidates {
            let since = self.watch.due_since(candidate.key, &candidate.descriptors, now);
            let hurried = again.contains(&candidate.key).then_some(now);
            due.extend(since.or(hurried).map(|since| (since, candidate)));
        }
        due.sort_by_key(|(since, candidate)| (*since, candidate.key));
        let mut reached = HashMap::new();
        for (_, candidate) in due {
            if self.purse.has_any(&candidate.pod.uid) {
                let ways = self.reach(candidate, now);
                self.purse.pay(&candidate.pod.uid, self.scout.take_asked());
                reached.extend(ways.map(|ways| (candidate.key, ways)));
            } else {
                self.watch.hurry(candidate.key, now);
            }
        }
        reached
    }

    fn reach(&mut self, candidate: &Candidate, now: u64) -> Option<Vec<Way>> {
        let (ways, obstacle) = match self.scout.reach(candidate) {
            // What it had open may have been the last copy.
            _ if sluice_sys::pidfd::has_ended(candidate.pidfd.as_fd()) => return None,
            Ok(ways) => (Some(ways), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let found = ways.iter().flatten().flat_map(Way::handles).collect();
        self.watch.looked(candidate.key, found, obstacle, now);
        ways
    }
}
