//! The groups of a process without the hook: they are taken under control, followed as they come and go, and released when a control
//! fails.

use super::{OtherParts, Unhooked};
use crate::channel_groups::{Admission, ChannelGroups, ControlDescriptorId, handles_of};
use crate::clients::{Process, Processes};
use crate::effect::{Effect, Effects};
use crate::io::Io;
use crate::unhooked::scanning::{ControlDescriptor, ControllableProcess, Obstacle, ObstacleKind, ProcessKey};
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::GroupId;
use sluice_core::ledger::ReturnKind;
use sluice_core::{ClientId, ProcessId};
use sluice_rate_limiter::Backoff;
use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tracing::info;

/// After this time a process of which a control has failed is tried again.
const RETRY: Duration = Duration::from_secs(300);

/// Control descriptors, and the groups that are controlled through each.
type Opened = Vec<(ControlDescriptorId, Vec<ContextHandles>)>;

impl Unhooked {
    /// Takes all groups of a process under control, in place of those that it had.
    pub(super) fn take_groups(
        &mut self,
        client: ClientId,
        found: ControllableProcess,
        parts: &mut OtherParts<'_>,
        effects: &mut Effects,
    ) -> Result<(), Obstacle> {
        let ControllableProcess { key, command, pod, pidfd, mut descriptors } = found;
        let known = parts.processes.find(key);
        let process = known.and_then(|id| parts.processes.get(id));
        // It has attached meanwhile, or it is the process of a client that was removed.
        if process.is_some_and(|process| process.is_attached() || process.client != client) {
            parts.io.closer.close(descriptors);
            return Ok(());
        }
        // A child that has inherited the file of its parent: the groups are the parent's.
        let of_others = handles_of_others(known, client, parts.processes, parts.groups);
        let is_its_own = |context: &ContextHandles| !of_others.contains(&handles_of(context));
        descriptors.iter_mut().for_each(|descriptor| descriptor.contexts.retain(is_its_own));
        let handles: HashSet<(u32, u32)> = descriptors.iter().flat_map(ControlDescriptor::handles).collect();
        let current = known.map(|id| parts.groups.handles(id)).unwrap_or_default();
        if !handles.is_empty() && self.has_failed(key, parts.io.now()) {
            parts.io.closer.close(descriptors);
            return Err(ObstacleKind::ControlFailed.because("a control of it has failed"));
        }
        if current == handles {
            parts.io.closer.close(descriptors);
            return Ok(());
        }
        let id = match known {
            Some(id) => id,
            None if handles.is_empty() => {
                parts.io.closer.close(descriptors);
                return Ok(());
            }
            None => add_process(client, key, &command, pod.container, pidfd, parts),
        };
        effects.push(Effect::SchedulingChanged(id));
        announce(id, client, descriptors, parts)
    }

    /// Whether a control of a process has failed, not long ago.
    pub(super) fn has_failed(&self, key: ProcessKey, now: u64) -> bool {
        self.failed.get(&key).is_some_and(|backoff| !backoff.is_ready(now))
    }

    /// A control of a process has failed, and its client's groups were released. If it runs without the hook it alone is no longer
    /// scheduled: otherwise a pod could get rid of all quanta by a process that cannot be controlled. `had_failed`: a control of an
    /// attached process of the client had failed already, so the client stays released.
    pub(crate) fn control_failed(
        &mut self,
        id: ProcessId,
        had_failed: bool,
        processes: &Processes,
        groups: &mut ChannelGroups,
        io: &Io,
    ) {
        let Some(process) = processes.get(id).filter(|process| process.unhooked) else { return };
        if let Some(key) = process.key {
            let mut backoff = Backoff::new(RETRY, RETRY);
            backoff.failed(io.now());
            self.failed.insert(key, backoff);
            self.unscheduled.insert(key, (process.client, ObstacleKind::ControlFailed));
        }
        if !had_failed {
            groups.scheduler.clear_failure(process.client);
        }
    }
}

/// Handles of the groups of the client's other processes.
fn handles_of_others(
    known: Option<ProcessId>,
    client: ClientId,
    processes: &Processes,
    groups: &ChannelGroups,
) -> HashSet<(u32, u32)> {
    let of_pod = |id| processes.client_of(id).is_none_or(|of| of == client);
    let others = groups.of_others(known).filter(|group| of_pod(group.process));
    others.map(|group| handles_of(&group.context)).collect()
}

/// Adds a process without the hook.
pub(super) fn add_process(
    client: ClientId,
    key: ProcessKey,
    command: &str,
    container: Option<String>,
    pidfd: OwnedFd,
    parts: &mut OtherParts<'_>,
) -> ProcessId {
    let pid = key.0;
    let label = format!("pid {pid} ({command:?}), without the hook");
    info!(client = parts.clients.name(client), peer = %label, "process without the hook is scheduled");
    let process = Process {
        unhooked: true,
        pid: Some(pid),
        key: Some(key),
        pidfd: Some(pidfd),
        ..Process::new(client, label, container)
    };
    let id = parts.processes.add(process, parts.io);
    parts.clients.memory.open(id, client);
    id
}

/// Announces the groups of a process to the scheduler on its behalf.
fn announce(
    id: ProcessId,
    client: ClientId,
    descriptors: Vec<ControlDescriptor>,
    parts: &mut OtherParts<'_>,
) -> Result<(), Obstacle> {
    let now = parts.io.now();
    let Some(class) = parts.clients.class(client) else { return Ok(()) };
    let Some(process) = parts.processes.get_mut(id) else { return Ok(()) };
    process.unhooked = true;
    let pid = process.pid;
    // It may have been there before, with a connection that has gone.
    let added = parts.ledger.add_process(id, client, ReturnKind::Returns);
    let contexts: Vec<ContextHandles> =
        descriptors.iter().flat_map(|descriptor| descriptor.contexts.clone()).collect();
    let admitted =
        added.is_ok() && parts.groups.admit(id, &contexts, parts.processes, parts.io) == Admission::Now;
    let unchanged: BTreeSet<GroupId> =
        contexts.iter().filter_map(|context| parts.groups.unchanged(id, context)).collect();
    let opened = if admitted {
        open(id, descriptors, parts)
    } else {
        parts.io.closer.close(descriptors);
        Err(ObstacleKind::TooMany.because("its pod has too many channel groups, or new ones too often"))
    };
    let (opened, obstacle) = match opened {
        Ok(opened) => (opened, None),
        Err(obstacle) => (Vec::new(), Some(obstacle)),
    };
    let mut added: Vec<GroupId> = Vec::new();
    for (descriptor, contexts) in opened {
        for context in contexts {
            added.push(parts.groups.add(id, pid, descriptor, context));
        }
        parts.groups.seal_descriptor(descriptor);
    }
    // A failed control of an attached process of the client does not concern this one.
    let scheduler = &mut parts.groups.scheduler;
    let pardoned = scheduler.clear_failure(client);
    scheduler.announce(id, (client, class), (added, &unchanged), parts.ledger, now);
    scheduler.restore_failure(client, pardoned);
    obstacle.map_or(Ok(()), Err)
}

/// Opens all control descriptors of a process, or none.
fn open(
    id: ProcessId,
    descriptors: Vec<ControlDescriptor>,
    parts: &mut OtherParts<'_>,
) -> Result<Opened, Obstacle> {
    let mut opened = Vec::new();
    let mut failed = None;
    for ControlDescriptor { descriptor, contexts } in descriptors {
        let pidfd = parts.processes.get(id).and_then(|process| process.pidfd.as_ref());
        if contexts.is_empty() || failed.is_some() {
            parts.io.closer.close(descriptor);
            continue;
        }
        match parts.groups.open(descriptor, pidfd) {
            Ok(descriptor) => opened.push((descriptor, contexts)),
            Err((descriptor, why)) => {
                parts.io.closer.close(descriptor);
                failed = Some(why);
            }
        }
    }
    if let Some(why) = failed {
        opened.iter().for_each(|(descriptor, _)| parts.groups.seal_descriptor(*descriptor));
        return Err(ObstacleKind::Driver.because(why));
    }
    Ok(opened)
}
