//! Which process a group belongs to. Two processes of a client may have one open file: a child inherits its parent's, and a process can send
//! it to another one.

use super::{Announcement, ChannelGroups, PostponedUntil, handles_of};
use crate::effect::Effects;
use crate::shared::Shared;
use crate::unhooked::ownership::OwnershipProof;
use crate::unhooked::scanning::{Obstacle, ObstacleKind};
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use std::collections::BTreeSet;

/// When an announcement of groups that are another process's is tried again.
const OWNED_RETRY_NS: u64 = 1_000_000_000;

impl ChannelGroups {
    /// Takes the result of an ownership check, unless the process has announced other groups since, or has ended.
    pub(crate) fn ownership_checked(&mut self, proof: OwnershipProof, shared: &mut Shared) -> Effects {
        let OwnershipProof { process: id, serial, owns } = proof;
        if self.postponed.get(&id).is_none_or(|(_, until)| *until != PostponedUntil::Proven(serial)) {
            return Effects::new();
        }
        let Some((announcement, _)) = self.postponed.remove(&id) else { return Effects::new() };
        // Its owner may have been stopped meanwhile.
        if self.belongs_to_other(id, &announcement, shared) {
            return self.postpone_owned(id, announcement, shared);
        }
        match owns {
            Ok(true) => self.take(id, announcement, shared),
            Ok(false) => self.refuse(id, "they belong to another process", shared),
            // A process that cannot be inspected is trusted with groups that were found nowhere else.
            Err(Obstacle { kind: ObstacleKind::NotPermitted, .. })
                if !self.was_found_elsewhere(id, &announcement, shared) =>
            {
                self.take(id, announcement, shared)
            }
            Err(obstacle) => self.refuse(id, &obstacle.text, shared),
        }
    }

    /// Whether a group of this announcement was found at another process, which runs without the hook.
    fn was_found_elsewhere(&self, id: ProcessId, announcement: &Announcement, shared: &Shared) -> bool {
        let unhooked = |owner| shared.processes.get(owner).is_some_and(|process| process.unhooked);
        let announced: BTreeSet<(u32, u32)> = announcement.contexts.iter().map(handles_of).collect();
        let mut others = self.of_others(Some(id)).filter(|group| unhooked(group.process));
        others.any(|group| announced.contains(&handles_of(&group.context)))
    }

    /// Whether a group of this announcement is another process's of the same client: one that has announced it and is attached, or one that is
    /// stopped. Its groups would be enabled in the quanta of the process that announces them now. A process on probation may have announced
    /// what it does not have.
    pub(super) fn belongs_to_other(
        &self,
        id: ProcessId,
        announcement: &Announcement,
        shared: &Shared,
    ) -> bool {
        let Some(process) = shared.processes.get(id) else { return false };
        let announced: BTreeSet<(u32, u32)> = announcement.contexts.iter().map(handles_of).collect();
        let mut others = self.groups.iter().filter(|(_, group)| group.process != id);
        others.any(|(number, group)| {
            let owner = shared.processes.get(group.process).filter(|owner| owner.client == process.client);
            let is_same_process = process.pid.is_some() && group.pid == process.pid;
            let is_attached = owner.is_some_and(|owner| owner.is_attached() && !owner.unhooked);
            let is_relied_on = is_attached && !self.scheduler.is_on_probation(group.process);
            let is_owner = self.scheduler.owns(group.process, *number)
                && (is_relied_on || owner.is_some() && self.scheduler.is_stopped(group.process));
            is_owner && !is_same_process && announced.contains(&handles_of(&group.context))
        })
    }

    /// Postpones an announcement of groups that are another process's now.
    pub(super) fn postpone_owned(
        &mut self,
        id: ProcessId,
        announcement: Announcement,
        shared: &mut Shared,
    ) -> Effects {
        let until = PostponedUntil::Time(shared.io.now().saturating_add(OWNED_RETRY_NS));
        self.postpone(id, announcement, until, shared)
    }

    /// Assigns announced groups to a process that were found at an unhooked process of the same client before: a child had inherited
    /// its parent's file. The groups keep their numbers. Returns the processes that had them.
    pub(super) fn reassign(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        shared: &Shared,
    ) -> BTreeSet<ProcessId> {
        let Some(process) = shared.processes.get(id) else { return BTreeSet::new() };
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut donors = BTreeSet::new();
        for group in self.groups.values_mut().filter(|group| group.process != id) {
            let owner = shared.processes.get(group.process);
            let from_unhooked = owner.is_some_and(|owner| owner.unhooked && owner.client == process.client);
            if from_unhooked && announced.contains(&handles_of(&group.context)) {
                donors.insert(group.process);
                (group.process, group.pid) = (id, process.pid);
            }
        }
        donors
    }
}
