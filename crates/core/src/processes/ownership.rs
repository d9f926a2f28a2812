//! Which process a group belongs to. Two processes of a client may have one open file: a child inherits its parent's, and a process can send
//! it to another one. Handles can be guessed: a process that announced another program's groups would take them out of that program's
//! scheduling.

use super::admission::all_opened;
use super::announcement::{Announcement, ControlDescriptorId, Origin, PostponedUntil, handles_of};
use super::event::{Effect, OwnershipProof};
use super::obstacle::{Obstacle, ObstacleKind};
use super::step::Step;
use super::table::Processes;
use crate::ids::ProcessId;
use sluice_comm::attach::ContextHandles;
use std::collections::BTreeSet;

/// When an announcement of groups that are another process's is tried again.
const OWNED_RETRY_NS: u64 = 1_000_000_000;

impl<P, D: Clone + Default> Processes<P, D> {
    /// Whether an announcement is checked from outside before it counts. Groups that the process has already were checked before.
    pub(super) fn must_prove(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let client = self.client_of(id).and_then(|client| self.clients.get(&client));
        let is_pod = client.is_some_and(|client| client.facts.is_pod);
        let is_new = |context| self.unchanged(id, context).is_none();
        self.policy.searches && is_pod && contexts.iter().any(is_new)
    }

    /// The announcement that waits for this check, unless the process has announced other groups since, or has ended.
    fn take_checked(&mut self, id: ProcessId, serial: u64) -> Option<Announcement<D>> {
        let awaits = |(_, until): &mut (_, _)| *until == PostponedUntil::Proven(serial);
        self.get_mut(id)?.postponed.take_if(awaits).map(|(announcement, _)| announcement)
    }

    pub(super) fn not_checked(
        &mut self,
        id: ProcessId,
        serial: u64,
        why: String,
        is_lack_of_room: bool,
        step: &mut Step<'_, D>,
    ) {
        if self.take_checked(id, serial).is_none() {
            return;
        }
        if is_lack_of_room {
            self.set_no_room(id);
        }
        self.refuse(id, why, step);
    }

    pub(super) fn proven(&mut self, proof: OwnershipProof, step: &mut Step<'_, D>) {
        let OwnershipProof { process: id, serial, owns } = proof;
        let Some(announcement) = self.take_checked(id, serial) else { return };
        // Its owner may have been stopped meanwhile.
        if self.belongs_to_other(id, &announcement.contexts) {
            return self.postpone_owned(id, announcement, step);
        }
        match owns {
            Ok(false) => self.refuse(id, "they belong to another process".into(), step),
            // A process that cannot be inspected is trusted with groups that were found nowhere else.
            Err(Obstacle { kind, text })
                if kind != ObstacleKind::NotPermitted
                    || self.was_found_elsewhere(id, &announcement.contexts) =>
            {
                self.refuse(id, text, step);
            }
            Ok(true) | Err(_) => step.effects.push(Effect::Open(id, Origin::Announced, announcement)),
        }
    }

    /// Whether one of these groups was found at another process, which runs without the hook.
    fn was_found_elsewhere(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let unhooked = |owner| self.get(owner).is_some_and(|record| record.state.is_unhooked());
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut others = self.of_others(Some(id)).filter(|group| unhooked(group.process));
        others.any(|group| announced.contains(&handles_of(&group.context)))
    }

    /// Whether one of these groups is another process's of the same client: one that has announced it and is attached, or one that is
    /// stopped. Its groups would be enabled in the quanta of the process that announces them now. A process on probation may have announced
    /// what it does not have.
    pub(super) fn belongs_to_other(&self, id: ProcessId, contexts: &[ContextHandles]) -> bool {
        let Some(record) = self.get(id) else { return false };
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut others = self.groups.iter().filter(|(_, group)| group.process != id);
        others.any(|(number, group)| {
            let owner = self.get(group.process).filter(|owner| owner.client == record.client);
            let is_same_process = record.pid.is_some() && group.pid == record.pid;
            let is_attached = owner.is_some_and(|owner| owner.is_attached() && !owner.state.is_unhooked());
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
        announcement: Announcement<D>,
        step: &mut Step<'_, D>,
    ) {
        let until = PostponedUntil::Time(step.now.saturating_add(OWNED_RETRY_NS));
        self.postpone(id, announcement, until, step);
    }

    /// Assigns announced groups to a process that were found at an unhooked process of the same client before: a child had inherited
    /// its parent's file. The groups keep their numbers. Returns the processes that had them.
    pub(super) fn reassign(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        descriptors: &[Option<ControlDescriptorId>],
    ) -> BTreeSet<ProcessId> {
        let Some((client, pid)) = self.get(id).map(|record| (record.client, record.pid)) else {
            return BTreeSet::new();
        };
        if !all_opened(contexts, descriptors) {
            return BTreeSet::new();
        }
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut donors = BTreeSet::new();
        let mut assigned = Vec::new();
        for (number, group) in self.groups.iter().filter(|(_, group)| group.process != id) {
            let owner = self.get(group.process);
            let from_unhooked =
                owner.is_some_and(|owner| owner.state.is_unhooked() && owner.client == client);
            if from_unhooked && announced.contains(&handles_of(&group.context)) {
                donors.insert(group.process);
                assigned.push(*number);
            }
        }
        for number in assigned {
            if let Some(group) = self.groups.get_mut(&number) {
                (group.process, group.pid) = (id, pid);
            }
        }
        donors
    }
}
