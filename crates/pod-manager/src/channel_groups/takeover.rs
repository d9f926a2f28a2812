//! Takes the announced groups of a process under control, in place of those that it had.

use super::{Announcement, ChannelGroups, handles_of};
use crate::clients::{Clients, Processes};
use crate::effect::{Effect, Effects};
use crate::io::Io;
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessId;
use sluice_core::channel_groups::GroupId;
use sluice_core::ledger::TokenLedger;
use std::collections::BTreeSet;
use tracing::debug;

impl ChannelGroups {
    /// Takes a process's groups under control if all of them can be: a process with one context that is not controlled would run
    /// outside its quanta.
    pub(crate) fn take(
        &mut self,
        id: ProcessId,
        mut announcement: Announcement,
        clients: &Clients,
        processes: &Processes,
        ledger: &mut TokenLedger,
        io: &mut Io,
    ) -> Effects {
        let Some(process) = processes.get(id) else { return Effects::new() };
        let Some(class) = clients.class(process.client) else { return Effects::new() };
        let mut contexts = std::mem::take(&mut announcement.contexts);
        let descriptors = self.open_all(id, std::mem::take(&mut announcement.descriptors), processes, io);
        let unchanged: BTreeSet<GroupId> =
            contexts.iter().filter_map(|context| self.unchanged(id, context)).collect();
        let descriptor_of = |context: &ContextHandles| *descriptors.get(context.descriptor as usize)?;
        if !contexts.iter().all(|context| descriptor_of(context).is_some()) {
            contexts.clear();
        }
        let donors = self.reassign(id, &contexts, processes);
        let mut groups = Vec::new();
        for context in contexts {
            let Some(descriptor) = descriptor_of(&context) else { continue };
            groups.push(self.add(id, process.pid, descriptor, context));
        }
        for descriptor in descriptors.iter().flatten() {
            self.seal_descriptor(*descriptor);
        }
        let count = groups.len();
        let owner = (process.client, class);
        let scheduled = self.scheduler.announce(id, owner, (groups, &unchanged), ledger, io.now());
        debug!(process = ?id, groups = count, hardware_scheduled = scheduled, "contexts announced");
        let mut effects = vec![Effect::SchedulingChanged(id)];
        for donor in donors {
            if !self.has_groups(donor) {
                effects.extend([Effect::ReleaseGroups(donor), Effect::SchedulingChanged(donor)]);
            }
            effects.push(Effect::InspectAgain(donor));
        }
        effects
    }

    /// Assigns announced groups to a process that were found at an unhooked process of the same client before: a child had inherited
    /// its parent's file. The groups keep their numbers. Returns the processes that had them.
    fn reassign(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        processes: &Processes,
    ) -> BTreeSet<ProcessId> {
        let Some(process) = processes.get(id) else { return BTreeSet::new() };
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut donors = BTreeSet::new();
        for group in self.groups.values_mut().filter(|group| group.process != id) {
            let owner = processes.get(group.process);
            let from_unhooked = owner.is_some_and(|owner| owner.unhooked && owner.client == process.client);
            if from_unhooked && announced.contains(&handles_of(&group.context)) {
                donors.insert(group.process);
                (group.process, group.pid) = (id, process.pid);
            }
        }
        donors
    }
}
