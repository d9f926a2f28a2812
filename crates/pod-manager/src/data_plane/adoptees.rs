//! A program without the hook under control: its groups are taken in, followed as they come and go, and given up when a control fails.

use super::DataPlane;
use super::adopted::has_attached;
use super::announcement::handles_of;
use super::contexts::Allowed;
use super::steering::Owned;
use crate::adopt::{Obstacle, ProcessKey, Reached, Way, Why};
use crate::channels::{Line, Order};
use crate::process::Process;
use sluice_comm::attach::ContextHandles;
use sluice_core::ledger::PeerKind;
use sluice_core::steering::GroupId;
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use tracing::info;

/// After so long a process of which a control has failed is tried again.
const FAILED_NS: u64 = 300_000_000_000;

/// Ways to the driver, and the groups that are controlled over each.
type Opened = Vec<(Line, Vec<ContextHandles>)>;

impl DataPlane {
    /// Takes all groups of a process under control, in place of those that it had.
    pub(super) fn take_in(&mut self, client: ClientId, found: Reached) -> Result<(), Obstacle> {
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

    pub(super) fn keep_adopted(
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
    pub(super) fn has_failed(&self, key: ProcessKey) -> bool {
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
}
