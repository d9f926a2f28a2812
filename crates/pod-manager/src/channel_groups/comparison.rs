//! Compares the groups that a process has announced, those that were found and those that are under control.

use super::{Announcement, ChannelGroups, ControlledGroup, covers, handles_of};
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use sluice_core::channel_groups::GroupId;
use std::collections::HashSet;

impl ChannelGroups {
    /// Records which groups a process announces.
    pub(crate) fn record_announced(&mut self, id: ProcessId, announcement: &Announcement) {
        self.announced.insert(id, announcement.contexts.clone());
    }

    /// Whether a process announced last exactly the groups that were found.
    pub(crate) fn has_announced(&self, id: ProcessId, found: &[ContextHandles]) -> bool {
        self.announced.get(&id).is_some_and(|announced| {
            let covered = |found| announced.iter().any(|announced| covers(announced, found));
            announced.len() == found.len() && found.iter().all(covered)
        })
    }

    /// Groups of a process that its controls do not stop, by what was found: the process has them and they are not under control, or not with
    /// all of their channels. While controls of the process fail, a group that was not found counts too, because it may be what fails.
    pub(crate) fn uncontrolled(&self, id: ProcessId, found: &[ContextHandles]) -> HashSet<(u32, u32)> {
        let controlled: Vec<&ContextHandles> = self.contexts(id).collect();
        let is_controlled = |found: &&ContextHandles| controlled.iter().any(|group| covers(group, found));
        let mut uncontrolled: HashSet<_> =
            found.iter().filter(|found| !is_controlled(found)).map(handles_of).collect();
        if self.scheduler.is_on_probation(id) {
            let was_found = |group: &&&ContextHandles| found.iter().any(|found| covers(found, group));
            uncontrolled
                .extend(controlled.iter().filter(|group| !was_found(group)).map(|group| handles_of(group)));
        }
        uncontrolled
    }

    /// Whether a process has a found group under control, with all of its channels.
    pub(crate) fn controls(&self, id: ProcessId, found: &ContextHandles) -> bool {
        self.contexts(id).any(|group| covers(group, found))
    }

    /// Whether a process has exactly the found groups under control.
    pub(crate) fn controls_exactly(&self, id: ProcessId, found: &[ContextHandles]) -> bool {
        self.contexts(id).count() == found.len() && self.uncontrolled(id, found).is_empty()
    }

    /// The group that a process has under control exactly as it announces it, through whichever descriptor.
    pub(crate) fn unchanged(&self, id: ProcessId, context: &ContextHandles) -> Option<GroupId> {
        let descriptor = context.descriptor;
        let same = |group: &ControlledGroup| {
            handles_of(&group.context) == handles_of(context)
                && ContextHandles { descriptor, ..group.context.clone() } == *context
        };
        let mut its = self.of_process(id);
        its.find(|(group_id, group)| same(group) && self.scheduler.owns(id, *group_id)).map(|(id, _)| id)
    }
}
