//! Compares the groups that a process has announced, those that were found and those that are under control.

use super::announcement::{covers, handles_of};
use super::table::Processes;
use crate::ids::{ClientId, ProcessId};
use sluice_comm::attach::ContextHandles;
use std::collections::BTreeSet;

impl<P, D> Processes<P, D> {
    /// Whether a process announced last exactly the groups that were found.
    pub(super) fn has_announced(&self, id: ProcessId, found: &[ContextHandles]) -> bool {
        let announced = self.get(id).and_then(|record| record.announced.as_ref());
        announced.is_some_and(|announced| {
            let covered = |found| announced.iter().any(|announced| covers(announced, found));
            announced.len() == found.len() && found.iter().all(covered)
        })
    }

    /// Groups of a process that its controls do not stop, by what was found: the process has them and they are not under control, or not with
    /// all of their channels. While controls of the process fail, a group that was not found counts too, because it may be what fails.
    pub(super) fn uncontrolled(&self, id: ProcessId, found: &[ContextHandles]) -> BTreeSet<(u32, u32)> {
        let controlled: Vec<&ContextHandles> = self.contexts(id).collect();
        let is_controlled = |found: &&ContextHandles| controlled.iter().any(|group| covers(group, found));
        let mut uncontrolled: BTreeSet<_> =
            found.iter().filter(|found| !is_controlled(found)).map(handles_of).collect();
        if self.scheduler.is_on_probation(id) {
            let was_found = |group: &&&ContextHandles| found.iter().any(|found| covers(found, group));
            let missing = controlled.iter().filter(|group| !was_found(group));
            uncontrolled.extend(missing.map(|group| handles_of(group)));
        }
        uncontrolled
    }

    /// Whether a process has exactly the found groups under control.
    pub(super) fn controls_exactly(&self, id: ProcessId, found: &[ContextHandles]) -> bool {
        self.contexts(id).count() == found.len() && self.uncontrolled(id, found).is_empty()
    }

    /// The groups that were found in a process, without those that are under control for other processes of the client alone. While its
    /// controls fail, a child that has its file open has its groups under control too.
    pub(super) fn its_own(&self, id: ProcessId, found: &[ContextHandles]) -> Vec<ContextHandles> {
        let Some(client) = self.client_of(id) else { return Vec::new() };
        let is_its_own = |found: &&ContextHandles| {
            self.contexts(id).any(|group| covers(group, found)) || !self.is_of_others(Some(id), client, found)
        };
        found.iter().filter(is_its_own).cloned().collect()
    }

    /// Whether a found group is under control for another process of the client. A group that another process has announced falsely is not
    /// that process's: it may have closed the file, so that nothing is found of it. Those of a stopped process stay disabled, whether its
    /// controls fail or not. A group that is being released is none's: its process may have gone, and this one goes on to use it.
    pub(super) fn is_of_others(
        &self,
        known: Option<ProcessId>,
        client: ClientId,
        found: &ContextHandles,
    ) -> bool {
        let is_relied_on = |id| !self.scheduler.is_on_probation(id) || self.scheduler.is_stopped(id);
        let mut others = self.groups.iter().filter(|(_, group)| Some(group.process) != known);
        others.any(|(number, group)| {
            let is_owned = group.client == Some(client) && self.scheduler.owns(group.process, *number);
            is_owned && is_relied_on(group.process) && covers(&group.context, found)
        })
    }
}
