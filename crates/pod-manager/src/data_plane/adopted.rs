//! Programs without the hook: what the adopter has found is taken under control, beside those who announce their groups.

use super::DataPlane;
use super::announcement::handles_of;
use super::contexts::Allowed;
use super::steering::Owned;
use crate::adopt::{
    Adopter, Claim, Locks, Look, Obstacle, ProcessKey, Reached, Sighted, Unreached, Way, Why,
};
use crate::channels::{Line, Order};
use crate::definition::Who;
use crate::identity::Identity;
use crate::process::Process;
use sluice_comm::attach::ContextHandles;
use sluice_core::ledger::{Class, PeerKind};
use sluice_core::steering::GroupId;
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tracing::{info, warn};

/// Time between the answer to a look and the next look.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// After so long a process of which a control has failed is tried again.
const FAILED_NS: u64 = 300_000_000_000;

/// Ways to the driver, and the groups that are controlled over each.
type Opened = Vec<(Line, Vec<ContextHandles>)>;

/// Who looks for programs without the hook, and who could not be taken.
#[derive(Default)]
pub(super) struct Adoption {
    /// `None`: nobody is looked for.
    adopter: Option<Adopter>,
    /// A look has not been answered yet.
    looking: bool,
    next_look: u64,
    /// Processes to be looked into at the next look.
    again: HashSet<ProcessKey>,
    /// Processes that are not controlled, and why.
    unsteered: BTreeMap<ProcessKey, (ClientId, Why)>,
    /// Processes of which a control has failed, and when: the others of their pods do not suffer for it.
    failed: HashMap<ProcessKey, u64>,
    /// Claims so far.
    claims: u64,
    /// The backstop; `None`: there is none.
    locks: Option<Locks>,
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

    /// Takes all groups of a process under control, in place of those that it had.
    fn take_in(&mut self, client: ClientId, found: Reached) -> Result<(), Obstacle> {
        let Reached { key, command, pod, pidfd, mut ways } = found;
        let known = self.by_peer.get(&key).copied();
        let process = known.and_then(|id| self.processes.get(&id));
        // It has attached meanwhile, or it is the process of a client that was removed.
        if process.is_some_and(|process| has_attached(process) || process.client != client) {
            self.closer.close(ways);
            return Ok(());
        }
        // A child that has inherited the file of its parent: the groups are the parent's.
        let elsewhere = |context: &ContextHandles| {
            let handles = (context.client, context.channel_group);
            let of_pod = |id| self.processes.get(id).is_none_or(|process| process.client == client);
            let others = self.helm.groups.values().filter(|owned| Some(owned.process) != known);
            others.filter(|owned| of_pod(&owned.process)).any(|owned| handles_of(&owned.context) == handles)
        };
        ways.iter_mut().for_each(|way| way.contexts.retain(|context| !elsewhere(context)));
        let handles: HashSet<(u32, u32)> = ways.iter().flat_map(Way::handles).collect();
        // What is on its way out is not among what it has.
        let stays = |(group, owned): &(&GroupId, &Owned)| self.helm.steering.owns(owned.process, **group);
        let its = self.helm.groups.iter().filter(|(_, owned)| Some(owned.process) == known).filter(stays);
        let has: HashSet<(u32, u32)> = its.map(|(_, owned)| handles_of(&owned.context)).collect();
        if !handles.is_empty() && self.has_failed(key) {
            self.closer.close(ways);
            return Err(Why::ControlFailed.because("a control of it has failed"));
        }
        if has == handles {
            self.closer.close(ways);
            return Ok(());
        }
        let id = match known {
            Some(id) => id,
            None if handles.is_empty() => {
                self.closer.close(ways);
                return Ok(());
            }
            None => self.keep_adopted(client, key, &command, pod.container, pidfd),
        };
        self.announce_for(id, client, ways)
    }

    fn keep_adopted(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        command: &str,
        container: Option<String>,
        pidfd: OwnedFd,
    ) -> ProcessId {
        let id = ProcessId(self.next_number(true));
        let pid = key.0;
        let label = format!("pid {pid} ({command:?}), without the hook");
        info!(client = self.clients.name(client), peer = %label, "is steered all the same");
        self.memory.open(id, client);
        let process = Process {
            adopted: true,
            pid: Some(pid),
            key: Some(key),
            pidfd: Some(pidfd),
            ..Process::new(client, label, container)
        };
        self.keep_process(id, process);
        id
    }

    /// Whether a control of a process has failed, not long ago.
    fn has_failed(&self, key: ProcessKey) -> bool {
        let at = self.adoption.failed.get(&key);
        at.is_some_and(|at| self.clock.now_ns() < at.saturating_add(FAILED_NS))
    }

    /// A control of a process has failed, and its client's groups were given back. If it was adopted only it is left alone: a pod could
    /// get rid of all turns by a process that cannot be controlled. `before`: a process of that client that has attached had failed
    /// already, and is not pardoned.
    pub(super) fn adopted_failed(&mut self, id: ProcessId, before: bool) {
        let now = self.clock.now_ns();
        let Some(process) = self.processes.get(&id).filter(|process| process.adopted) else { return };
        let (client, key) = (process.client, process.key);
        self.adoption.failed.extend(key.map(|key| (key, now)));
        self.adoption.unsteered.extend(key.map(|key| (key, (client, Why::ControlFailed))));
        if !before {
            self.helm.steering.pardon(client);
        }
    }

    /// A process's groups were given back, though nothing is wrong with it: if it was adopted it is looked into at once.
    pub(super) fn take_in_again(&mut self, id: ProcessId) {
        let adopted = self.processes.get(&id).filter(|process| process.adopted);
        if let Some(key) = adopted.and_then(|process| process.key) {
            self.adoption.again.insert(key);
            self.adoption.next_look = self.clock.now_ns();
        }
    }

    /// Whether the driver's lock is to be had for a client's processes. Who is latency-critical is never stopped.
    fn can_lock(&self, client: ClientId) -> bool {
        let class = self.clients.get(client).map(|client| client.definition.spec.class);
        class == Some(Class::BestEffort) && self.adoption.locks.as_ref().is_some_and(Locks::are_ready)
    }

    /// Has a process held by the driver's lock, in place of its groups: as one group, which is stopped by locking and has no slice.
    fn lock_instead(&mut self, id: ProcessId, client: ClientId, obstacle: &Obstacle) -> bool {
        let now = self.clock.now_ns();
        let Some(locks) = self.adoption.locks.clone().filter(|_| self.can_lock(client)) else { return false };
        let Some(process) = self.processes.get_mut(&id) else { return false };
        let (Some(pid), Some(pidfd)) = (process.pid, process.pidfd.as_ref()) else { return false };
        let Ok(pidfd) = pidfd.try_clone() else { return false };
        let handles = Locks::handles(pid);
        let mut its = self.helm.groups.iter().filter(|(_, owned)| owned.process == id);
        let is_held = |group: &GroupId| self.helm.steering.owns(id, *group);
        if its.any(|(group, owned)| handles_of(&owned.context) == handles_of(&handles) && is_held(group)) {
            return true;
        }
        process.adopted = true;
        let (peer, key) = (process.label.clone(), process.key);
        if key.is_some_and(|key| self.has_failed(key)) {
            return false;
        }
        let added = self.tokens.add_process(id, client, PeerKind::Returns);
        if added.is_err() || self.may_announce(id, std::slice::from_ref(&handles), now) != Allowed::Now {
            return false;
        }
        let line = self.helm.open(locks.of(pid, pidfd), None);
        let group = self.helm.add(id, Some(pid), line, handles);
        self.helm.executor.order(Order::Close(line));
        let pardoned = self.helm.steering.pardon(client);
        self.helm.steering.announce(
            id,
            (client, Class::BestEffort),
            (vec![group], &BTreeSet::new()),
            &mut self.tokens,
            now,
        );
        self.helm.steering.pardoned_until_now(client, pardoned);
        self.follow(id);
        let (client, reason) = (self.clients.name(client), obstacle.why.label());
        warn!(client, peer, reason, "takes turns by the driver's lock: {obstacle}");
        true
    }

    fn announce_for(&mut self, id: ProcessId, client: ClientId, ways: Vec<Way>) -> Result<(), Obstacle> {
        let now = self.clock.now_ns();
        let Some(class) = self.clients.get(client).map(|client| client.definition.spec.class) else {
            return Ok(());
        };
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        process.adopted = true;
        let pid = process.pid;
        // It may have been there before, with a connection that has gone.
        let added = self.tokens.add_process(id, client, PeerKind::Returns);
        let contexts: Vec<ContextHandles> = ways.iter().flat_map(|way| way.contexts.clone()).collect();
        let allowed = added.is_ok() && self.may_announce(id, &contexts, now) == Allowed::Now;
        let stayed: BTreeSet<GroupId> =
            contexts.iter().filter_map(|context| self.helm.unchanged(id, context)).collect();
        let lines = if allowed {
            self.open_lines(id, ways)
        } else {
            self.closer.close(ways);
            Err(Why::TooMany.because("its pod has too many channel groups, or new ones too often"))
        };
        let (lines, obstacle) = match lines {
            Ok(lines) => (lines, None),
            Err(obstacle) => (Vec::new(), Some(obstacle)),
        };
        let mut groups: Vec<GroupId> = Vec::new();
        for (line, contexts) in lines {
            for context in contexts {
                groups.push(self.helm.add(id, pid, line, context));
            }
            self.helm.executor.order(Order::Close(line));
        }
        // Whatever a process that has attached did wrong; that one is not pardoned.
        let pardoned = self.helm.steering.pardon(client);
        self.helm.steering.announce(id, (client, class), (groups, &stayed), &mut self.tokens, now);
        self.helm.steering.pardoned_until_now(client, pardoned);
        self.follow(id);
        obstacle.map_or(Ok(()), Err)
    }

    /// Ways to the driver for all of it, or for nothing.
    fn open_lines(&mut self, id: ProcessId, ways: Vec<Way>) -> Result<Opened, Obstacle> {
        let mut lines = Vec::new();
        let mut failed = None;
        for Way { descriptor, contexts } in ways {
            let process = self.processes.get(&id).and_then(|process| process.pidfd.as_ref());
            if contexts.is_empty() || failed.is_some() {
                self.closer.close(descriptor);
                continue;
            }
            match self.helm.adopt(descriptor, process) {
                Ok(line) => lines.push((line, contexts)),
                Err((descriptor, why)) => {
                    self.closer.close(descriptor);
                    failed = Some(why);
                }
            }
        }
        if let Some(why) = failed {
            lines.iter().for_each(|(line, _)| self.helm.executor.order(Order::Close(*line)));
            return Err(Why::Driver.because(why));
        }
        Ok(lines)
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
fn has_attached(process: &Process) -> bool {
    process.token.is_some()
}
