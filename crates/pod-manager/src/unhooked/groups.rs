//! Processes without the hook are scheduled: their groups are taken under control and followed as they come and go. A process whose groups cannot be controlled is held by the driver's lock.

use super::Unhooked;
use super::scanning::{Candidate, ControlDescriptor, DriverLocks, Obstacle, ObstacleKind};
use crate::channel_groups::{Admission, ChannelGroups, ControlDescriptorId, covers, handles_of};
use crate::clients::{Clients, Process};
use crate::effect::{Effect, Effects};
use crate::shared::Shared;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::GroupId;
use sluice_core::ledger::{Class, ReturnKind};
use sluice_core::{ClientId, ProcessId};
use std::collections::BTreeSet;
use tracing::{info, warn};

/// Control descriptors, and the groups that are controlled through each.
type Opened = Vec<(ControlDescriptorId, Vec<ContextHandles>)>;

impl Unhooked {
    /// Takes all groups of a process under control, in place of those that it had.
    pub(super) fn take_groups(
        &mut self,
        client: ClientId,
        found: Candidate,
        mut descriptors: Vec<ControlDescriptor>,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
        effects: &mut Effects,
    ) -> Result<(), Obstacle> {
        let known = shared.processes.find(found.key);
        // A child that has inherited the file of its parent: the groups are the parent's.
        let others = groups_of_others(known, client, groups, shared);
        let is_its_own = |found: &ContextHandles| !others.iter().any(|other| covers(other, found));
        descriptors.iter_mut().for_each(|descriptor| descriptor.contexts.retain(is_its_own));
        let contexts: Vec<ContextHandles> =
            descriptors.iter().flat_map(|descriptor| descriptor.contexts.clone()).collect();
        if known.map_or(contexts.is_empty(), |id| groups.controls_exactly(id, &contexts)) {
            shared.io.closer.close(descriptors);
            return Ok(());
        }
        let id = known.unwrap_or_else(|| add_process(client, found, shared));
        effects.push(Effect::SchedulingChanged(id));
        announce(id, client, descriptors, groups, shared)
    }

    /// Whether the driver's lock can be used for a client's processes. Latency-critical ones are never locked.
    pub(super) fn can_lock(&self, client: ClientId, clients: &Clients) -> bool {
        clients.class(client).is_some_and(|class| !class.is_latency_critical())
            && self.locks.as_ref().is_some_and(DriverLocks::are_ready)
    }

    /// Schedules a process by the driver's lock in place of its groups: it counts as one group, which is disabled by locking and has no
    /// time slice. Returns whether that is so.
    pub(super) fn lock_instead(
        &mut self,
        id: ProcessId,
        client: ClientId,
        obstacle: &Obstacle,
        groups: &mut ChannelGroups,
        shared: &mut Shared,
    ) -> bool {
        let Some(locks) = self.locks.clone().filter(|_| self.can_lock(client, &shared.clients)) else {
            return false;
        };
        let Some(class) = shared.clients.class(client) else { return false };
        let Some(process) = shared.processes.get_mut(id) else { return false };
        let (Some(pid), Some(pidfd)) = (process.pid, process.pidfd.as_ref()) else { return false };
        let Ok(pidfd) = pidfd.try_clone() else { return false };
        let handles = DriverLocks::placeholder_handles(pid);
        if groups.handles(id).contains(&handles_of(&handles)) {
            return true;
        }
        process.unhooked = true;
        let added = shared.grants.ledger.add_process(id, client, ReturnKind::Returns);
        let announced = std::slice::from_ref(&handles);
        if added.is_err() || groups.admit(id, announced, shared) != Admission::Now {
            return false;
        }
        let descriptor = groups.add_descriptor(locks.control_of(pid, pidfd), None);
        let opened = vec![(descriptor, vec![handles])];
        schedule(id, (client, class), opened, BTreeSet::new(), groups, shared);
        let (client, peer) = (shared.clients.name(client), shared.processes.label(id));
        let reason = obstacle.kind.label();
        warn!(client, peer, reason, "process is scheduled by the driver's lock: {obstacle}");
        true
    }
}

/// The groups of the client's other processes, as they are controlled. A group that another process has announced falsely is not that
/// process's: it may have closed the file, so that nothing is found of it. Those of a stopped process stay disabled, whether its controls fail
/// or not.
pub(super) fn groups_of_others(
    known: Option<ProcessId>,
    client: ClientId,
    groups: &ChannelGroups,
    shared: &Shared,
) -> Vec<ContextHandles> {
    let of_pod = |id| shared.processes.client_of(id).is_none_or(|of| of == client);
    let others = groups.of_others(known).filter(|group| of_pod(group.process));
    let is_relied_on = |id| !groups.scheduler.is_on_probation(id) || groups.scheduler.is_stopped(id);
    let relied_on = others.filter(|group| is_relied_on(group.process));
    relied_on.map(|group| group.context.clone()).collect()
}

/// Adds a process without the hook.
pub(super) fn add_process(client: ClientId, found: Candidate, shared: &mut Shared) -> ProcessId {
    let Candidate { key, command, pod, pidfd, .. } = found;
    let label = format!("pid {} ({command:?}), without the hook", key.0);
    info!(client = shared.clients.name(client), peer = %label, "process without the hook is scheduled");
    let process = Process {
        unhooked: true,
        pid: Some(key.0),
        key: Some(key),
        pidfd: Some(pidfd),
        ..Process::new(client, label, pod.container)
    };
    let id = shared.processes.add(process, &shared.io);
    shared.clients.memory.open(id, client);
    id
}

/// Announces the groups of a process to the scheduler on its behalf.
fn announce(
    id: ProcessId,
    client: ClientId,
    descriptors: Vec<ControlDescriptor>,
    groups: &mut ChannelGroups,
    shared: &mut Shared,
) -> Result<(), Obstacle> {
    let Some(class) = shared.clients.class(client) else { return Ok(()) };
    let Some(process) = shared.processes.get_mut(id) else { return Ok(()) };
    process.unhooked = true;
    // It may have been there before, with a connection that has gone.
    let added = shared.grants.ledger.add_process(id, client, ReturnKind::Returns);
    let contexts: Vec<ContextHandles> =
        descriptors.iter().flat_map(|descriptor| descriptor.contexts.clone()).collect();
    let admission = if added.is_ok() { groups.admit(id, &contexts, shared) } else { Admission::Never };
    let unchanged: BTreeSet<GroupId> =
        contexts.iter().filter_map(|context| groups.unchanged(id, context)).collect();
    let opened = if admission == Admission::Now {
        open(id, descriptors, groups, shared)
    } else {
        shared.io.closer.close(descriptors);
        Err(ObstacleKind::TooMany.because(match admission {
            Admission::NoRoom => "the pods of the GPU have too many channel groups",
            _ => "its pod has too many channel groups, or new ones too often",
        }))
    };
    let (opened, result) = opened.map_or_else(|why| (Vec::new(), Err(why)), |opened| (opened, Ok(())));
    schedule(id, (client, class), opened, unchanged, groups, shared);
    result
}

/// Takes groups under control and schedules their process by them.
fn schedule(
    id: ProcessId,
    owner: (ClientId, Class),
    opened: Opened,
    unchanged: BTreeSet<GroupId>,
    groups: &mut ChannelGroups,
    shared: &mut Shared,
) {
    let pid = shared.processes.get(id).and_then(|process| process.pid);
    let mut added: Vec<GroupId> = Vec::new();
    for (descriptor, contexts) in opened {
        added.extend(contexts.into_iter().map(|context| groups.add(id, pid, descriptor, context)));
        groups.seal_descriptor(descriptor);
    }
    groups.schedule(id, owner, (added, unchanged), shared);
}

/// Opens all control descriptors of a process, or none.
fn open(
    id: ProcessId,
    descriptors: Vec<ControlDescriptor>,
    groups: &mut ChannelGroups,
    shared: &Shared,
) -> Result<Opened, Obstacle> {
    let pidfd = shared.processes.get(id).and_then(|process| process.pidfd.as_ref());
    let mut opened = Vec::new();
    let mut failed = None;
    for ControlDescriptor { descriptor, contexts } in descriptors {
        if contexts.is_empty() || failed.is_some() {
            shared.io.closer.close(descriptor);
            continue;
        }
        match groups.open(descriptor, pidfd) {
            Ok(descriptor) => opened.push((descriptor, contexts)),
            Err((descriptor, why)) => {
                shared.io.closer.close(descriptor);
                failed = Some(why);
            }
        }
    }
    if let Some(why) = failed {
        opened.iter().for_each(|(descriptor, _)| groups.seal_descriptor(*descriptor));
        return Err(ObstacleKind::Driver.because(why));
    }
    Ok(opened)
}
