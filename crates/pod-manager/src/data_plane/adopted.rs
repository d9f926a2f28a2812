//! Programs without the hook: when they are looked for, and what becomes of those that were found.

use super::DataPlane;
use crate::adopt::{Adopter, Claim, Locks, Look, Obstacle, ProcessKey, Sighted, Unreached, Why};
use crate::definition::Who;
use crate::identity::Identity;
use crate::process::Process;
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use tracing::warn;

/// Time between the answer to a look and the next look.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// Who looks for programs without the hook, and who could not be taken.
#[derive(Default)]
pub(super) struct Adoption {
    /// `None`: nobody is looked for.
    adopter: Option<Adopter>,
    /// A look has not been answered yet.
    looking: bool,
    pub(super) next_look: u64,
    /// Processes to be looked into at the next look.
    pub(super) again: HashSet<ProcessKey>,
    /// Processes that are not controlled, and why.
    pub(super) unsteered: BTreeMap<ProcessKey, (ClientId, Why)>,
    /// Processes of which a control has failed, and when: the others of their pods do not suffer for it.
    pub(super) failed: HashMap<ProcessKey, u64>,
    /// Claims so far.
    claims: u64,
    /// The backstop; `None`: there is none.
    pub(super) locks: Option<Locks>,
}

impl Adoption {
    pub(super) fn new(adopter: Option<Adopter>, lock_program: Option<PathBuf>) -> Self {
        Self { adopter, locks: lock_program.map(Locks::by), ..Self::default() }
    }

    /// Whether anybody is looked for.
    pub(super) fn looks(&self) -> bool {
        self.adopter.is_some()
    }

    /// Has a claim of a process looked at; its number comes back.
    pub(super) fn prove(&mut self, process: ProcessId, claim: Claim) -> u64 {
        self.claims += 1;
        if let Some(adopter) = &self.adopter {
            adopter.prove(process, self.claims, claim);
        }
        self.claims
    }

    fn can_look(&self) -> bool {
        self.adopter.is_some() && !self.looking
    }
}

impl DataPlane {
    /// When the next look is due, if there is anybody to look for.
    pub(super) fn next_look(&self) -> Option<u64> {
        (self.adoption.can_look() && self.pods().next().is_some()).then_some(self.adoption.next_look)
    }

    fn pods(&self) -> impl Iterator<Item = &String> {
        let clients = self.clients.iter().filter(|(_, client)| !client.left_out);
        clients.filter_map(|(_, client)| match &client.definition.who {
            Who::Pod { uid, .. } => Some(uid),
            Who::Named(_) => None,
        })
    }

    /// Has the adopter look around if it is time to.
    pub(super) fn look_around(&mut self) {
        let now = self.clock.now_ns();
        if self.next_look().is_none_or(|next| next > now) {
            return;
        }
        let pods: HashSet<String> = self.pods().cloned().collect();
        let has_attached = |id: &ProcessId| self.processes.get(id).is_some_and(has_attached);
        let attached = self.by_peer.iter().filter(|(_, id)| has_attached(id)).map(|(key, _)| *key).collect();
        if let Some(adopter) = &self.adoption.adopter {
            let again = std::mem::take(&mut self.adoption.again);
            adopter.look(Look { now, pods, attached, again });
            self.adoption.looking = true;
        }
    }

    /// What a look has found.
    pub(super) fn sighted(&mut self, sighted: Sighted) {
        let Sighted { present, reached, unreached } = sighted;
        self.adoption.looking = false;
        let pause = if self.adoption.again.is_empty() { LOOK_EVERY_NS } else { 0 };
        self.adoption.next_look = self.clock.now_ns().saturating_add(pause);
        if let Some(present) = present {
            self.adoption.unsteered.retain(|key, _| present.contains(key));
            self.adoption.failed.retain(|key, _| present.contains(key));
        }
        for Unreached { key, command, pod, pidfd, obstacle } in unreached {
            let known = self.by_peer.get(&key).copied();
            let Some(client) = self.clients.find(&Identity::Pod(pod.clone())) else { continue };
            let process = known.and_then(|id| self.processes.get(&id));
            if process.is_some_and(|process| has_attached(process) || process.client != client) {
                self.adoption.unsteered.remove(&key);
                continue;
            }
            let locks = obstacle.why.can_be_locked() && self.can_lock(client);
            let id = known
                .or_else(|| locks.then(|| self.keep_adopted(client, key, &command, pod.container, pidfd)));
            self.is_not_reached(id, client, key, &command, &obstacle);
        }
        for found in reached {
            let Some(client) = self.clients.find(&Identity::Pod(found.pod.clone())) else {
                self.closer.close(found.ways);
                continue;
            };
            let (key, command) = (found.key, found.command.clone());
            match self.take_in(client, found) {
                Ok(()) => drop(self.adoption.unsteered.remove(&key)),
                Err(obstacle) => {
                    let id = self.by_peer.get(&key).copied();
                    self.is_not_reached(id, client, key, &command, &obstacle);
                }
            }
        }
    }

    /// Its groups cannot be had, at least not all of them: it is held by the driver's lock if that can be, or let go.
    fn is_not_reached(
        &mut self,
        id: Option<ProcessId>,
        client: ClientId,
        key: ProcessKey,
        command: &str,
        obstacle: &Obstacle,
    ) {
        if obstacle.why.can_be_locked() && id.is_some_and(|id| self.lock_instead(id, client, obstacle)) {
            self.adoption.unsteered.remove(&key);
            return;
        }
        if let Some(id) = id {
            self.unsteer(id);
            self.follow(id);
        }
        self.is_not_steered(client, key, command, obstacle);
    }

    /// Notes why a process is not steered, and says so once.
    fn is_not_steered(&mut self, client: ClientId, key: ProcessKey, command: &str, obstacle: &Obstacle) {
        let noted = self.adoption.unsteered.insert(key, (client, obstacle.why));
        if noted != Some((client, obstacle.why))
            && self.throttle.pass("unsteered", self.clock.now_ns()).is_some()
        {
            let client = self.clients.name(client);
            let (pid, reason) = (key.0, obstacle.why.label());
            warn!(client, pid, command, reason, "runs without the hook and is not steered: {obstacle}");
        }
    }

    /// How many processes of a client run without the hook and are steered.
    pub(super) fn adopted(&self, client: ClientId) -> usize {
        let its = self.processes.iter().filter(|(_, process)| process.client == client);
        let controlled =
            |id: ProcessId| self.helm.groups.values().any(|owned| owned.process == id && !owned.stuck);
        its.filter(|(id, process)| process.adopted && controlled(**id)).count()
    }

    /// How many processes of a client run without the hook and are not steered, by [`Why::index`].
    pub(super) fn unsteered(&self, client: ClientId) -> [i64; Why::LABELS.len()] {
        let mut counts = [0; Why::LABELS.len()];
        for (_, why) in self.adoption.unsteered.values().filter(|(whose, _)| *whose == client) {
            if let Some(count) = counts.get_mut(why.index()) {
                *count += 1;
            }
        }
        counts
    }
}

/// Whether a process speaks for itself.
pub(super) fn has_attached(process: &Process) -> bool {
    process.token.is_some()
}
