//! Groups that two processes of a client have: a child inherits the file of its parent, and a process can send it to another one.

use super::{Announcement, ChannelGroups, handles_of};
use crate::shared::Shared;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use std::collections::BTreeSet;

impl ChannelGroups {
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
