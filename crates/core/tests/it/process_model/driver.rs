//! The driver with its channel groups, and the manager's thread that makes the controls.

use super::bugs::Bug;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::{Control, ControlOp, ControlOutcome, GroupId};
use sluice_core::processes::ControlDescriptorId;
use std::collections::BTreeMap;

/// The driver client of the first process. Each process opens the driver once, so that its file has one client.
const FIRST_CLIENT: u32 = 100;

/// A channel group of the driver: the process that has opened the file, and the number of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DriverGroup {
    pub(super) file: usize,
    pub(super) number: u32,
}

impl DriverGroup {
    /// Its handles, under the descriptor with this index.
    pub(super) fn handles(self, descriptor: u32) -> ContextHandles {
        let client = FIRST_CLIENT + u32::try_from(self.file).unwrap();
        let channels = vec![10 * self.number];
        ContextHandles { descriptor, client, subdevice: 1, channel_group: self.number, channels }
    }

    pub(super) fn of(handles: &ContextHandles) -> Self {
        let file = usize::try_from(handles.client - FIRST_CLIENT).unwrap();
        Self { file, number: handles.channel_group }
    }
}

/// A group as the executor controls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ExecutorGroup {
    descriptor: ControlDescriptorId,
    pub(super) group: DriverGroup,
    /// The executor has disabled it.
    disabled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Driver {
    /// The groups that exist, and whether they are enabled.
    pub(super) groups: BTreeMap<DriverGroup, bool>,
    /// The files of which the executor has a descriptor.
    pub(super) descriptors: BTreeMap<ControlDescriptorId, usize>,
    /// The groups that the executor controls.
    pub(super) controlled: BTreeMap<GroupId, ExecutorGroup>,
    last_descriptor: u64,
}

impl Driver {
    /// The executor keeps a descriptor of this file.
    pub(super) fn open(&mut self, file: usize) -> ControlDescriptorId {
        self.last_descriptor += 1;
        let id = ControlDescriptorId(self.last_descriptor);
        self.descriptors.insert(id, file);
        id
    }

    pub(super) fn add(&mut self, id: GroupId, descriptor: ControlDescriptorId, handles: &ContextHandles) {
        let group = ExecutorGroup { descriptor, group: DriverGroup::of(handles), disabled: false };
        if let Some(before) = self.controlled.insert(id, group) {
            self.close_if_unused(before.descriptor);
        }
    }

    pub(super) fn forget(&mut self, id: GroupId) {
        if let Some(group) = self.controlled.remove(&id) {
            self.close_if_unused(group.descriptor);
        }
    }

    pub(super) fn close_if_unused(&mut self, descriptor: ControlDescriptorId) {
        if !self.controlled.values().any(|group| group.descriptor == descriptor) {
            self.descriptors.remove(&descriptor);
        }
    }

    /// The driver frees the groups of files that no process and no descriptor of the executor holds open.
    pub(super) fn free(&mut self, is_held: impl Fn(usize) -> bool) {
        let is_kept = |file: usize| is_held(file) || self.descriptors.values().any(|its| *its == file);
        self.groups.retain(|group, _| is_kept(group.file));
    }

    /// Makes a control of the group of a process that is stopped, or is not. The driver refuses a control through another file than the group's.
    pub(super) fn make(&mut self, control: Control, is_stopped: bool, bug: Bug) -> ControlOutcome {
        let Some(known) = self.controlled.get_mut(&control.group) else { return ControlOutcome::Gone };
        let Some(file) = self.descriptors.get(&known.descriptor) else { return ControlOutcome::Gone };
        if *file != known.group.file {
            return ControlOutcome::Failed;
        }
        let Some(enabled) = self.groups.get_mut(&known.group) else { return ControlOutcome::Gone };
        match control.op {
            ControlOp::Disable if is_stopped && bug == Bug::LeavesStoppedEnabled => {}
            ControlOp::Disable => (*enabled, known.disabled) = (false, true),
            ControlOp::Enable => (*enabled, known.disabled) = (true, false),
            ControlOp::SetSlice(_) => {}
        }
        ControlOutcome::Done
    }

    /// The groups that run although the executor has disabled them.
    pub(super) fn running_disabled(&self) -> Vec<GroupId> {
        let runs = |known: &ExecutorGroup| known.disabled && self.groups.get(&known.group) == Some(&true);
        self.controlled.iter().filter(|(_, known)| runs(known)).map(|(id, _)| *id).collect()
    }

    /// Its process enables all groups of a file.
    pub(super) fn enable_all(&mut self, file: usize) {
        self.groups
            .iter_mut()
            .filter(|(group, _)| group.file == file)
            .for_each(|(_, enabled)| *enabled = true);
    }
}
